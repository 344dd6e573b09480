#include "client_lib/rpc/codec.h"

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client_lib/rpc/testing/codec_messages.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"

namespace pawl {
namespace {

ByteView View(const std::string& bytes) { return ByteView(bytes.data(), bytes.size()); }

// The same bytes in fragments with memory of their own, so that a read past the end of one is
// detected.
class Fragmented {
 public:
  Fragmented(const std::string& bytes, const std::vector<size_t>& splits) {
    size_t begin = 0;
    for (size_t i = 0; i <= splits.size(); ++i) {
      const size_t end = i < splits.size() ? splits[i] : bytes.size();
      if (end == begin) continue;
      pieces_.emplace_back(new char[end - begin]);
      std::memcpy(pieces_.back().get(), bytes.data() + begin, end - begin);
      view_.Append(pieces_.back().get(), end - begin);
      begin = end;
    }
  }
  const ByteView& view() const { return view_; }

 private:
  std::deque<std::unique_ptr<char[]>> pieces_;
  ByteView view_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  uint64_t Below(uint64_t limit) { return generator_() % limit; }
  // Zero, small and large numbers.
  uint64_t Number() { return Below(3) == 0 ? 0 : generator_() >> Below(64); }
  std::string Bytes(size_t max) {
    std::string bytes(Below(4) == 0 ? 0 : Below(max), '\0');
    for (char& c : bytes) c = static_cast<char>(generator_());
    return bytes;
  }
  RequestHeader Header() {
    RequestHeader header;
    header.set_job_id(Number());
    header.set_epoch(Number());
    switch (Below(3)) {
      case 0:
        header.set_logical_worker(static_cast<uint32_t>(Number()));
        break;
      case 1:
        header.set_client(static_cast<uint32_t>(Number()));
        break;
    }
    header.set_incarnation(Number());
    header.set_step(Number());
    return header;
  }
  PushRequest Push() {
    PushRequest request;
    *request.mutable_header() = Header();
    for (uint64_t i = Below(5); i > 0; --i) {
      PushSegment& segment = *request.add_segments();
      segment.set_table(static_cast<uint32_t>(Number()));
      segment.set_partition(static_cast<uint32_t>(Number()));
      segment.set_ordinal(Number());
      segment.set_element_type(static_cast<ElementType>(static_cast<int32_t>(Number())));
      segment.set_keys(Bytes(1000));
      segment.set_values(Bytes(1000));
      segment.set_exponent(static_cast<int32_t>(Number()));
      segment.set_effect(static_cast<PushEffect>(static_cast<int32_t>(Number())));
      segment.set_slots(Bytes(1000));
    }
    return request;
  }
  PullRequest Pull() {
    PullRequest request;
    *request.mutable_header() = Header();
    for (uint64_t i = Below(5); i > 0; --i) {
      PullSegment& segment = *request.add_segments();
      segment.set_table(static_cast<uint32_t>(Number()));
      segment.set_partition(static_cast<uint32_t>(Number()));
      segment.set_keys(Bytes(1000));
      segment.set_with_slots(Below(2) == 0);
    }
    return request;
  }
  PullResponse Response() {
    PullResponse response;
    for (uint64_t i = Below(5); i > 0; --i) {
      PullResult& result = *response.add_results();
      result.set_values(Bytes(1000));
      result.set_slots(Bytes(1000));
    }
    return response;
  }
  ScanResponse Page() {
    ScanResponse page;
    page.set_keys(Bytes(200));
    page.set_values(Bytes(1000));
    page.set_slots(Bytes(1000));
    page.set_done(Below(2) == 0);
    page.set_next_key(Below(2) == 0 ? 0 : UINT64_MAX >> Below(64));
    return page;
  }
  std::vector<size_t> Splits(size_t size) {
    std::vector<size_t> splits;
    for (uint64_t i = Below(8); i > 0; --i) splits.push_back(Below(size + 1));
    std::sort(splits.begin(), splits.end());
    return splits;
  }

 private:
  std::mt19937_64 generator_;
};

std::string Encode(const PushRequest& request) {
  std::vector<SegmentView> segments;
  for (const PushSegment& segment : request.segments()) {
    SegmentView& view = segments.emplace_back();
    view.table = segment.table();
    view.partition = segment.partition();
    view.ordinal = segment.ordinal();
    view.element_type = segment.element_type();
    view.keys = View(segment.keys());
    view.values = View(segment.values());
    view.exponent = segment.exponent();
    view.effect = segment.effect();
    view.slots = View(segment.slots());
  }
  return Flat(EncodePushRequest(request.header(), segments).bytes);
}

std::string Encode(const PullRequest& request) {
  std::vector<SegmentView> segments;
  for (const PullSegment& segment : request.segments()) {
    SegmentView& view = segments.emplace_back();
    view.table = segment.table();
    view.partition = segment.partition();
    view.keys = View(segment.keys());
    view.with_slots = segment.with_slots();
  }
  return Flat(EncodePullRequest(request.header(), segments).bytes);
}

std::string Encode(const PullResponse& response) {
  std::vector<PullResultView> results;
  for (const PullResult& result : response.results())
    results.push_back({View(result.values()), View(result.slots())});
  return Flat(EncodePullResponse(results).bytes);
}

std::string Encode(const ScanResponse& page) {
  return Flat(EncodeScanResponse({.keys = View(page.keys()),
                                  .values = View(page.values()),
                                  .slots = View(page.slots()),
                                  .done = page.done(),
                                  .next_key = page.next_key()})
                  .bytes);
}

TEST(CodecTest, EncodersWriteTheBytesOfProtobuf) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const PushRequest push = random.Push();
    EXPECT_EQ(Encode(push), push.SerializeAsString());
    const PullRequest pull = random.Pull();
    EXPECT_EQ(Encode(pull), pull.SerializeAsString());
    const PullResponse response = random.Response();
    EXPECT_EQ(Encode(response), response.SerializeAsString());
    const ScanResponse page = random.Page();
    EXPECT_EQ(Encode(page), page.SerializeAsString());
  }
}

TEST(CodecTest, DecodersReadFragmentedProtobufBytes) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::string push = random.Push().SerializeAsString();
    const Fragmented push_pieces(push, random.Splits(push.size()));
    const absl::StatusOr<RequestView> push_view = DecodePushRequest(push_pieces.view());
    ASSERT_TRUE(push_view.ok()) << push_view.status();
    EXPECT_EQ(PushMessage(*push_view).SerializeAsString(), push);

    const std::string pull = random.Pull().SerializeAsString();
    const Fragmented pull_pieces(pull, random.Splits(pull.size()));
    const absl::StatusOr<RequestView> pull_view = DecodePullRequest(pull_pieces.view());
    ASSERT_TRUE(pull_view.ok()) << pull_view.status();
    EXPECT_EQ(PullMessage(*pull_view).SerializeAsString(), pull);

    const std::string response = random.Response().SerializeAsString();
    const Fragmented response_pieces(response, random.Splits(response.size()));
    const absl::StatusOr<PullResponseView> response_view =
        DecodePullResponse(response_pieces.view());
    ASSERT_TRUE(response_view.ok()) << response_view.status();
    EXPECT_EQ(PullResponseMessage(*response_view).SerializeAsString(), response);

    const std::string page = random.Page().SerializeAsString();
    const Fragmented page_pieces(page, random.Splits(page.size()));
    const absl::StatusOr<ScanResponseView> page_view = DecodeScanResponse(page_pieces.view());
    ASSERT_TRUE(page_view.ok()) << page_view.status();
    EXPECT_EQ(ScanResponseMessage(*page_view).SerializeAsString(), page);
  }
}

TEST(CodecTest, MessageInAnyThreeFragmentsReadsTheSame) {
  PushRequest request;
  request.mutable_header()->set_job_id(0x1122334455667788);
  request.mutable_header()->set_logical_worker(0);
  for (int i = 0; i < 2; ++i) {
    PushSegment& segment = *request.add_segments();
    segment.set_table(300);
    segment.set_partition(255);
    segment.set_ordinal(uint64_t{1} << 40);
    segment.set_element_type(FLOAT32);
    segment.set_keys("12345678");
    segment.set_values("abcdefghijkl");
  }
  const std::string bytes = request.SerializeAsString();
  for (size_t i = 0; i <= bytes.size(); ++i) {
    for (size_t j = i; j <= bytes.size(); ++j) {
      const Fragmented pieces(bytes, {i, j});
      const absl::StatusOr<RequestView> view = DecodePushRequest(pieces.view());
      ASSERT_TRUE(view.ok()) << view.status();
      ASSERT_EQ(PushMessage(*view).SerializeAsString(), bytes);
    }
  }
}

// The decoder treats mangled bytes as protobuf does, except for its own rule against repeated bytes
// fields.
TEST(CodecTest, MangledBytesAreReadAsByProtobuf) {
  Random random(3);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = random.Push().SerializeAsString();
    for (uint64_t changes = 1 + random.Below(3); changes > 0 && !bytes.empty(); --changes) {
      switch (random.Below(3)) {
        case 0:
          bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
          break;
        case 1:
          bytes.resize(random.Below(bytes.size() + 1));
          break;
        case 2:
          bytes.insert(random.Below(bytes.size() + 1), 1, static_cast<char>(random.Below(256)));
          break;
      }
    }
    const Fragmented pieces(bytes, random.Splits(bytes.size()));
    const absl::StatusOr<RequestView> view = DecodePushRequest(pieces.view());
    PushRequest expected;
    const bool parsed = expected.ParseFromString(bytes);
    if (view.ok()) {
      ASSERT_TRUE(parsed) << i;
      expected.mutable_header();
      // Unknown fields stay in the protobuf message but not in the view.
      expected.DiscardUnknownFields();
      PushRequest actual = PushMessage(*view);
      actual.DiscardUnknownFields();
      ASSERT_EQ(actual.SerializeAsString(), expected.SerializeAsString()) << i;
    } else {
      ++refused;
      ASSERT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_TRUE(!parsed || view.status().message().find("twice") != absl::string_view::npos)
          << view.status();
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 19000);
}

TEST(CodecTest, TruncatedSegmentsAreRefused) {
  PushRequest request;
  PushSegment& segment = *request.add_segments();
  segment.set_table(300);
  segment.set_keys("12345678");
  segment.set_values("abcd");
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 1; size < bytes.size(); ++size) {
    const Fragmented pieces(bytes.substr(0, size), {});
    EXPECT_EQ(DecodePushRequest(pieces.view()).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
}

TEST(CodecTest, ExponentsOfEitherSignMatchProtobuf) {
  for (const int32_t exponent : {0, -1, 1, -125, 112, INT32_MIN, INT32_MAX}) {
    PushRequest request;
    request.mutable_header()->set_step(1);
    request.add_segments()->set_exponent(exponent);
    const std::string bytes = request.SerializeAsString();
    EXPECT_EQ(Encode(request), bytes) << exponent;
    const auto view = DecodePushRequest(View(bytes));
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->segments[0].exponent, exponent);
  }
}

TEST(CodecTest, SenderZeroIsWritten) {
  RequestHeader header;
  header.set_logical_worker(0);
  PushRequest request;
  ASSERT_TRUE(request.ParseFromString(Flat(EncodePushRequest(header, {}).bytes)));
  EXPECT_EQ(request.header().sender_case(), RequestHeader::kLogicalWorker);
  const std::string bytes = request.SerializeAsString();
  EXPECT_EQ(DecodePushRequest(View(bytes))->header.sender_case(), RequestHeader::kLogicalWorker);
}

TEST(CodecTest, UnknownFieldsOfEveryWireTypeAreSkipped) {
  PushRequest request;
  request.mutable_header()->set_step(9);
  PushSegment& segment = *request.add_segments();
  segment.set_table(7);
  segment.set_keys("12345678");
  const std::string unknown = std::string("\xf8\x01\x96\x01", 4) +  // 31: varint
                              std::string(
                                  "\xf9\x01"
                                  "12345678",
                                  10) +  // 31: fixed64
                              std::string(
                                  "\xfa\x01\x03"
                                  "abc",
                                  6) +  // 31: bytes
                              std::string("\xfb\x01\x08\x01\x0b\x0c\xfc\x01",
                                          8) +  // 31: group with a varint and a group in it
                              std::string(
                                  "\xfd\x01"
                                  "1234",
                                  6);  // 31: fixed32
  std::string content = unknown + segment.SerializeAsString() + unknown;
  std::string header = request.header().SerializeAsString() + unknown;
  std::string bytes = unknown;
  bytes += '\x12';
  bytes += static_cast<char>(content.size());
  bytes += content + unknown;
  bytes += '\x0a';
  bytes += static_cast<char>(header.size());
  bytes += header;
  ASSERT_TRUE(PushRequest().ParseFromString(bytes));
  const absl::StatusOr<RequestView> view = DecodePushRequest(View(bytes));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->header.step(), 9);
  ASSERT_EQ(view->segments.size(), 1);
  EXPECT_EQ(view->segments[0].table, 7);
  EXPECT_EQ(Flat(view->segments[0].keys), "12345678");
}

TEST(CodecTest, RepeatedBytesFieldsAreRefusedByName) {
  PushRequest request;
  request.add_segments()->set_keys("12345678");
  std::string content = request.segments(0).SerializeAsString();
  content += content;
  const std::string push = std::string("\x12") + static_cast<char>(content.size()) + content;
  EXPECT_EQ(DecodePushRequest(View(push)).status(),
            absl::InvalidArgumentError("the field `keys` occurs twice in one segment"));
  const std::string values = "\x0a\x01x\x0a\x01y";
  const std::string response = std::string("\x0a") + static_cast<char>(values.size()) + values;
  EXPECT_EQ(DecodePullResponse(View(response)).status(),
            absl::InvalidArgumentError("the field `values` occurs twice in one segment"));
}

TEST(CodecTest, TooManySegmentsAreRefused) {
  std::string bytes;
  for (size_t i = 0; i < kMaxSegmentsInMessage; ++i) bytes += std::string("\x12\x00", 2);
  EXPECT_EQ(DecodePushRequest(View(bytes))->segments.size(), kMaxSegmentsInMessage);
  bytes += std::string("\x12\x00", 2);
  EXPECT_EQ(DecodePushRequest(View(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodePullRequest(View(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CodecTest, TooManyBytesAreRefused) {
  const std::string piece(1 << 20, 'x');
  ByteView message;
  for (size_t size = 0; size <= kMaxMessageBytes; size += piece.size())
    message.Append(piece.data(), piece.size());
  const absl::Status status = DecodePushRequest(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("67108864"), absl::string_view::npos) << status;
}

TEST(CodecTest, TooLargeHeaderIsRefused) {
  const std::string unknown = std::string("\xfa\x01", 2) + "\x88\x27" + std::string(5000, 'x');
  std::string bytes = "\x0a";
  bytes += "\x8c\x27" + unknown;
  ASSERT_TRUE(PushRequest().ParseFromString(bytes));
  EXPECT_EQ(DecodePushRequest(View(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CodecTest, LargeFieldsAreNotCopied) {
  const std::string keys(8000, 'k');
  const std::string values(64000, 'v');
  const SegmentView segment{1, 2, 3, FLOAT32, View(keys), View(values)};
  const OutgoingMessage message = EncodePushRequest(RequestHeader(), {segment});
  int referred = 0;
  for (const ByteView::Fragment& fragment : message.bytes.fragments()) {
    referred += fragment.data() == keys.data() || fragment.data() == values.data();
  }
  EXPECT_EQ(referred, 2);
  const std::string bytes = Flat(message.bytes);
  const absl::StatusOr<RequestView> view = DecodePushRequest(View(bytes));
  ASSERT_TRUE(view.ok());
  EXPECT_GE(view->segments[0].values.fragments()[0].data(), bytes.data());
  EXPECT_LT(view->segments[0].values.fragments()[0].data(), bytes.data() + bytes.size());
}

TEST(CodecTest, MessageKeepsItsOwnerAlive) {
  auto owner = std::make_shared<int>(1);
  std::weak_ptr<int> watched = owner;
  {
    const OutgoingMessage message = EncodePullResponse({}, std::move(owner));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(CodecTest, SmallMessagesHaveALimit) {
  EndStepResponse response;
  response.set_partitions(5);
  const OutgoingMessage message = EncodeSmall(response);
  EndStepResponse read;
  ASSERT_TRUE(DecodeSmall(message.bytes, read).ok());
  EXPECT_EQ(read.partitions(), 5);
  EXPECT_EQ(DecodeSmall(View("\xff"), read).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodeSmall(View(std::string((1 << 20) + 1, '\0')), read).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CodecTest, SchedulerAnswersMayBeLarge) {
  RoutingTable table;
  table.add_servers()->set_address(std::string(2 << 20, 'a'));
  RoutingTable read;
  ASSERT_TRUE(DecodeControl(EncodeSmall(table).bytes, read).ok());
  EXPECT_EQ(read.servers(0).address(), table.servers(0).address());
  EXPECT_EQ(DecodeControl(View("\xff"), read).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace pawl
