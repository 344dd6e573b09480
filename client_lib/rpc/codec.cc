#include "client_lib/rpc/codec.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/wire_format.h"

namespace pawl {
namespace {

// An upper bound for the tags, lengths and numbers of one segment, which take at most 75 bytes.
constexpr size_t kMaxOwnBytesInSegment = 80;
// The size of a serialized RequestHeader is about 50 bytes, plus unknown fields.
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxSmallMessageBytes = 1 << 20;

// Field numbers of proto/parameter.proto.
enum RequestField : uint32_t { kHeader = 1, kSegments = 2 };
enum PushField : uint32_t {
  kPushTable = 1,
  kPushPartition = 2,
  kPushOrdinal = 3,
  kPushElementType = 4,
  kPushKeys = 5,
  kPushValues = 6,
  kPushExponent = 7,
  kPushEffect = 8,
  kPushSlots = 9
};
enum PullField : uint32_t { kPullTable = 1, kPullPartition = 2, kPullKeys = 3, kPullWithSlots = 4 };
enum ResponseField : uint32_t { kResults = 1 };
enum ResultField : uint32_t { kResultValues = 1, kResultSlots = 2 };
enum ScanField : uint32_t {
  kScanKeys = 1,
  kScanValues = 2,
  kScanSlots = 3,
  kScanDone = 4,
  kScanNextKey = 5
};

size_t PushSegmentSize(const SegmentView& segment) {
  return VarintFieldSize(segment.table) + VarintFieldSize(segment.partition) +
         VarintFieldSize(segment.ordinal) + VarintFieldSize(segment.element_type) +
         BytesFieldSize(segment.keys.size()) + BytesFieldSize(segment.values.size()) +
         VarintFieldSize(ZigZag(segment.exponent)) + VarintFieldSize(segment.effect) +
         BytesFieldSize(segment.slots.size());
}

size_t PullSegmentSize(const SegmentView& segment) {
  return VarintFieldSize(segment.table) + VarintFieldSize(segment.partition) +
         BytesFieldSize(segment.keys.size()) + VarintFieldSize(segment.with_slots);
}

bool Parse(const ByteView& message, google::protobuf::MessageLite& out) {
  std::string bytes(message.size(), '\0');
  message.CopyTo(bytes.data());
  return out.ParseFromString(bytes);
}

absl::Status Malformed(absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, " is not a valid protobuf message; see proto/parameter.proto"));
}

absl::Status CheckSize(const ByteView& message, absl::string_view name) {
  if (message.size() <= kMaxMessageBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", message.size(),
                                                 " bytes; the limit is ", kMaxMessageBytes,
                                                 "; send several messages"));
}

absl::Status TooManySegments(absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, " has more than ", kMaxSegmentsInMessage,
                   " segments, which is the limit; send several messages"));
}

absl::Status TwiceGiven(absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat("the field `", field, "` occurs twice in one segment"));
}

absl::Status ReadHeader(WireDecoder& decoder, absl::string_view name, RequestHeader* header) {
  size_t size;
  if (!decoder.ReadLength(&size)) return Malformed(name);
  if (size > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ".header has ", size, " bytes; the limit is ", kMaxHeaderBytes));
  }
  ByteView view;
  decoder.ReadView(size, &view);
  char bytes[kMaxHeaderBytes];
  view.CopyTo(bytes);
  // Protobuf merges a message field that occurs twice.
  RequestHeader part;
  if (!part.ParseFromArray(bytes, static_cast<int>(size)))
    return Malformed(absl::StrCat(name, ".header"));
  header->MergeFrom(part);
  return absl::OkStatus();
}

absl::Status ReadBytesOnce(WireDecoder& decoder, absl::string_view name, absl::string_view field,
                           bool* seen, ByteView* view) {
  size_t size;
  if (!decoder.ReadLength(&size)) return Malformed(name);
  if (std::exchange(*seen, true)) return TwiceGiven(field);
  decoder.ReadView(size, view);
  return absl::OkStatus();
}

absl::Status ReadPushSegment(WireDecoder& decoder, SegmentView* segment) {
  constexpr char kName[] = "PushSegment";
  bool keys_seen = false;
  bool values_seen = false;
  bool slots_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    switch (tag) {
      case Tag(kPushTable, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->table = static_cast<uint32_t>(value);
        break;
      case Tag(kPushPartition, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->partition = static_cast<uint32_t>(value);
        break;
      case Tag(kPushOrdinal, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->ordinal = value;
        break;
      case Tag(kPushElementType, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->element_type = static_cast<ElementType>(static_cast<int32_t>(value));
        break;
      case Tag(kPushKeys, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "keys", &keys_seen, &segment->keys));
        break;
      case Tag(kPushValues, kBytes):
        PAWL_RETURN_IF_ERROR(
            ReadBytesOnce(decoder, kName, "values", &values_seen, &segment->values));
        break;
      case Tag(kPushExponent, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->exponent = UnZigZag(static_cast<uint32_t>(value));
        break;
      case Tag(kPushEffect, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->effect = static_cast<PushEffect>(static_cast<int32_t>(value));
        break;
      case Tag(kPushSlots, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "slots", &slots_seen, &segment->slots));
        break;
      default:
        if (!decoder.SkipField(tag)) return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPullSegment(WireDecoder& decoder, SegmentView* segment) {
  constexpr char kName[] = "PullSegment";
  bool keys_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    switch (tag) {
      case Tag(kPullTable, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->table = static_cast<uint32_t>(value);
        break;
      case Tag(kPullPartition, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->partition = static_cast<uint32_t>(value);
        break;
      case Tag(kPullKeys, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "keys", &keys_seen, &segment->keys));
        break;
      case Tag(kPullWithSlots, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        segment->with_slots = value != 0;
        break;
      default:
        if (!decoder.SkipField(tag)) return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPullResult(WireDecoder& decoder, PullResultView* result) {
  constexpr char kName[] = "PullResult";
  bool values_seen = false;
  bool slots_seen = false;
  while (!decoder.done()) {
    uint32_t tag;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    if (tag == Tag(kResultValues, kBytes)) {
      PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "values", &values_seen, &result->values));
    } else if (tag == Tag(kResultSlots, kBytes)) {
      PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "slots", &slots_seen, &result->slots));
    } else if (!decoder.SkipField(tag)) {
      return Malformed(kName);
    }
  }
  return absl::OkStatus();
}

// How often a field occurs, as far as the message is well-formed.
size_t CountFields(const ByteView& message, uint32_t field_tag) {
  size_t count = 0;
  uint32_t tag;
  WireDecoder decoder(message);
  while (!decoder.done() && decoder.ReadTag(&tag) && decoder.SkipField(tag))
    count += tag == field_tag;
  return count;
}

// Reads the repeated message field `segments_tag` and, unless `header` is null, the header.
template <typename Segment>
absl::Status ReadMessage(const ByteView& message, absl::string_view name, uint32_t segments_tag,
                         absl::Status (*read_segment)(WireDecoder&, Segment*),
                         RequestHeader* header, std::vector<Segment>* segments) {
  PAWL_RETURN_IF_ERROR(CheckSize(message, name));
  segments->reserve(std::min(CountFields(message, segments_tag), kMaxSegmentsInMessage));
  WireDecoder decoder(message);
  while (!decoder.done()) {
    uint32_t tag;
    if (!decoder.ReadTag(&tag)) return Malformed(name);
    if (header != nullptr && tag == Tag(kHeader, kBytes)) {
      PAWL_RETURN_IF_ERROR(ReadHeader(decoder, name, header));
    } else if (tag == segments_tag) {
      if (segments->size() == kMaxSegmentsInMessage) return TooManySegments(name);
      size_t size;
      if (!decoder.ReadLength(&size)) return Malformed(name);
      const size_t outside = decoder.Enter(size);
      segments->emplace_back();
      PAWL_RETURN_IF_ERROR(read_segment(decoder, &segments->back()));
      decoder.Leave(outside);
    } else if (!decoder.SkipField(tag)) {
      return Malformed(name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

PushRequestField::PushRequestField(const RequestHeader& header,
                                   absl::Span<const SegmentView> segments)
    : header_(header), segments_(segments) {
  const size_t header_size = header.ByteSizeLong();
  size_ = 1 + VarintSize(header_size) + header_size;
  own_bytes_ = kMaxOwnBytesInSegment + header_size;
  for (const SegmentView& segment : segments) {
    const size_t segment_size = PushSegmentSize(segment);
    size_ += 1 + VarintSize(segment_size) + segment_size;
    own_bytes_ += kMaxOwnBytesInSegment + CopiedBytes(segment.keys) + CopiedBytes(segment.values) +
                  CopiedBytes(segment.slots);
  }
}

void PushRequestField::Put(WireEncoder& encoder) const {
  encoder.PutLength(kHeader, header_.ByteSizeLong());
  encoder.PutMessage(header_);
  for (const SegmentView& segment : segments_) {
    encoder.PutLength(kSegments, PushSegmentSize(segment));
    encoder.PutVarintField(kPushTable, segment.table);
    encoder.PutVarintField(kPushPartition, segment.partition);
    encoder.PutVarintField(kPushOrdinal, segment.ordinal);
    encoder.PutVarintField(kPushElementType, segment.element_type);
    encoder.PutBytesField(kPushKeys, segment.keys);
    encoder.PutBytesField(kPushValues, segment.values);
    encoder.PutVarintField(kPushExponent, ZigZag(segment.exponent));
    encoder.PutVarintField(kPushEffect, segment.effect);
    encoder.PutBytesField(kPushSlots, segment.slots);
  }
}

OutgoingMessage EncodePushRequest(const RequestHeader& header,
                                  absl::Span<const SegmentView> segments,
                                  std::shared_ptr<const void> owner) {
  const PushRequestField push(header, segments);
  WireEncoder encoder(push.own_bytes(), std::move(owner));
  push.Put(encoder);
  return std::move(encoder).Finish();
}

OutgoingMessage EncodePullRequest(const RequestHeader& header,
                                  absl::Span<const SegmentView> segments) {
  const size_t header_size = header.ByteSizeLong();
  size_t own_bytes = kMaxOwnBytesInSegment + header_size;
  for (const SegmentView& segment : segments)
    own_bytes += kMaxOwnBytesInSegment + CopiedBytes(segment.keys);
  WireEncoder encoder(own_bytes, /*owner=*/nullptr);
  encoder.PutLength(kHeader, header_size);
  encoder.PutMessage(header);
  for (const SegmentView& segment : segments) {
    encoder.PutLength(kSegments, PullSegmentSize(segment));
    encoder.PutVarintField(kPullTable, segment.table);
    encoder.PutVarintField(kPullPartition, segment.partition);
    encoder.PutBytesField(kPullKeys, segment.keys);
    encoder.PutVarintField(kPullWithSlots, segment.with_slots);
  }
  return std::move(encoder).Finish();
}

OutgoingMessage EncodePullResponse(absl::Span<const PullResultView> results,
                                   std::shared_ptr<const void> owner) {
  size_t own_bytes = 0;
  for (const PullResultView& result : results) {
    own_bytes += kMaxOwnBytesInSegment + CopiedBytes(result.values) + CopiedBytes(result.slots);
  }
  WireEncoder encoder(own_bytes, std::move(owner));
  for (const PullResultView& result : results) {
    encoder.PutLength(kResults,
                      BytesFieldSize(result.values.size()) + BytesFieldSize(result.slots.size()));
    encoder.PutBytesField(kResultValues, result.values);
    encoder.PutBytesField(kResultSlots, result.slots);
  }
  return std::move(encoder).Finish();
}

OutgoingMessage EncodeScanResponse(const ScanResponseView& page,
                                   std::shared_ptr<const void> owner) {
  WireEncoder encoder(kMaxOwnBytesInSegment + CopiedBytes(page.keys) + CopiedBytes(page.values) +
                          CopiedBytes(page.slots),
                      std::move(owner));
  encoder.PutBytesField(kScanKeys, page.keys);
  encoder.PutBytesField(kScanValues, page.values);
  encoder.PutBytesField(kScanSlots, page.slots);
  encoder.PutVarintField(kScanDone, page.done);
  encoder.PutVarintField(kScanNextKey, page.next_key);
  return std::move(encoder).Finish();
}

OutgoingMessage EncodeSmall(const google::protobuf::MessageLite& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  OutgoingMessage out;
  out.bytes.Append(bytes->data(), bytes->size());
  out.owner = std::move(bytes);
  return out;
}

absl::StatusOr<RequestView> DecodePushRequest(const ByteView& message) {
  RequestView view;
  PAWL_RETURN_IF_ERROR(ReadMessage(message, "PushRequest", Tag(kSegments, kBytes), &ReadPushSegment,
                                   &view.header, &view.segments));
  return view;
}

absl::StatusOr<RequestView> DecodePullRequest(const ByteView& message) {
  RequestView view;
  PAWL_RETURN_IF_ERROR(ReadMessage(message, "PullRequest", Tag(kSegments, kBytes), &ReadPullSegment,
                                   &view.header, &view.segments));
  return view;
}

absl::StatusOr<PullResponseView> DecodePullResponse(const ByteView& message) {
  PullResponseView view;
  PAWL_RETURN_IF_ERROR(ReadMessage(message, "PullResponse", Tag(kResults, kBytes), &ReadPullResult,
                                   nullptr, &view.results));
  return view;
}

absl::StatusOr<ScanResponseView> DecodeScanResponse(const ByteView& message) {
  constexpr char kName[] = "ScanResponse";
  PAWL_RETURN_IF_ERROR(CheckSize(message, kName));
  ScanResponseView page;
  bool keys_seen = false;
  bool values_seen = false;
  bool slots_seen = false;
  WireDecoder decoder(message);
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    if (!decoder.ReadTag(&tag)) return Malformed(kName);
    switch (tag) {
      case Tag(kScanKeys, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "keys", &keys_seen, &page.keys));
        break;
      case Tag(kScanValues, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "values", &values_seen, &page.values));
        break;
      case Tag(kScanSlots, kBytes):
        PAWL_RETURN_IF_ERROR(ReadBytesOnce(decoder, kName, "slots", &slots_seen, &page.slots));
        break;
      case Tag(kScanDone, kVarint):
        if (!decoder.ReadVarint(&value)) return Malformed(kName);
        page.done = value != 0;
        break;
      case Tag(kScanNextKey, kVarint):
        if (!decoder.ReadVarint(&page.next_key)) return Malformed(kName);
        break;
      default:
        if (!decoder.SkipField(tag)) return Malformed(kName);
    }
  }
  return page;
}

absl::Status DecodeSmall(const ByteView& message, google::protobuf::MessageLite& out) {
  if (message.size() > kMaxSmallMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(out.GetTypeName(), " has ", message.size(),
                                                   " bytes; the limit is ", kMaxSmallMessageBytes));
  }
  return Parse(message, out) ? absl::OkStatus() : Malformed(out.GetTypeName());
}

absl::Status DecodeControl(const ByteView& message, google::protobuf::MessageLite& out) {
  if (Parse(message, out)) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the scheduler's answer, a ", out.GetTypeName(), ", is malformed"));
}

}  // namespace pawl
