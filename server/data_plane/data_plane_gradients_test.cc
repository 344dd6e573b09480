#include <string>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/half.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/codec.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/testing/data_plane_fixture.h"
#include "server/replication/testing/fake_durable_log.h"

namespace pawl {
namespace {

TEST_F(DataPlaneTest, AcceptsGradientsOfEveryTypeAndDefaultsToFloat32) {
  Start(ASYNC, 1);
  uint64_t ordinal = 0;
  const auto push = [&](ElementType type, std::vector<float> values) {
    PushRequest request = RowPush(ClientHeader(), 1, values, ordinal++);
    request.mutable_segments(0)->set_element_type(type);
    std::string bytes(values.size() * ElementBytes(type), '\0');
    EncodeElements(type, values.data(), values.size(), bytes.data());
    request.mutable_segments(0)->set_values(bytes);
    return Push(request);
  };
  EXPECT_TRUE(push(BFLOAT16, {1, 1.0f / 3}).ok());
  EXPECT_EQ(Row(1), (Floats{-1, -FloatOfBfloat16(Bfloat16Of(1.0f / 3))}));
  EXPECT_TRUE(push(FLOAT16, {-1, 0}).ok());
  EXPECT_TRUE(push(ELEMENT_TYPE_UNSPECIFIED, {0, 0.5f}).ok());
  EXPECT_EQ(Row(1), (Floats{0, -FloatOfBfloat16(Bfloat16Of(1.0f / 3)) - 0.5f}));
}

TEST_F(DataPlaneTest, SixteenBitSegmentMustFitAfterDecoding) {
  Start(ASYNC, 1);
  PushRequest request = RowPush(ClientHeader(), 1, {1, 2});
  request.mutable_segments(0)->set_element_type(BFLOAT16);
  request.mutable_segments(0)->mutable_values()->resize(size_t{33} << 20);
  const absl::Status status = Push(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the limit is 67104768"), absl::string_view::npos) << status;
}

TEST_F(DataPlaneTest, ExponentIsBoundedAndForFloat16Only) {
  Start(ASYNC, 1);
  EXPECT_TRUE(Push(As(FLOAT16, RowPush(ClientHeader(), 1, {3e-9f, -1e-10f}), -40)).ok());
  const Floats row = Row(1);
  EXPECT_NEAR(row[0], -3e-9f, 3e-12f);
  EXPECT_NEAR(row[1], 1e-10f, 1e-13f);
  for (const auto& [type, exponent] :
       {std::pair(FLOAT16, 113), {FLOAT16, -126}, {BFLOAT16, 1}, {FLOAT32, -1}}) {
    PushRequest request = As(type, RowPush(ClientHeader(), 1, {1, 2}, 1));
    request.mutable_segments(0)->set_exponent(exponent);
    const absl::Status status = Push(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("exponent"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Row(1), row);
}

TEST_F(DataPlaneTest, DuplicateInAnotherTypeIsRecognised) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Push(RowPush(ClientHeader(), 1, {1, 2})).ok());
  const auto answer = Send(Method::kPush, As(BFLOAT16, RowPush(ClientHeader(), 1, {1, 2})));
  ASSERT_TRUE((*answer)->status.ok());
  PushResponse response;
  ASSERT_TRUE(DecodeSmall((*answer)->message.bytes, response).ok());
  EXPECT_EQ(response.deduplicated(), 1u);
  EXPECT_EQ(response.accepted(), 0u);
  EXPECT_EQ(Row(1), (Floats{-1, -2}));
}

TEST_F(DataPlaneTest, DecodedFloatsCountAsBytesInFlight) {
  PushRequest push;
  *push.mutable_header() = ClientHeader();
  for (uint64_t key = 1; key < 20; ++key) AddRow(push, key, {1, 1}, key);
  push = As(BFLOAT16, push);
  const size_t decoded = 19 * (sizeof(uint64_t) + kWidth * sizeof(float));
  const size_t answer_bytes = kWidth * sizeof(float);
  for (const size_t missing : {0, 1}) {
    DataPlaneOptions options;
    options.max_bytes_in_flight = answer_bytes + push.ByteSizeLong() + decoded - missing;
    Start(ASYNC, 1, options);
    const auto answer = Send(Method::kPull, RowPull(ClientHeader(), 1));
    ASSERT_TRUE(answer->value().status.ok());
    EXPECT_EQ(Push(push).code(),
              missing == 0 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted);
    plane_->Close(absl::UnavailableError("the end"));
  }
}

TEST_F(DataPlaneTest, LogMustHaveRoomForDecodedFloats) {
  FakeDurableLog log;
  Start(ASYNC, 1);
  CreateBlocks();
  // Replicas created without a log do not wait for one.
  plane_->SetLog(log);
  const PushRequest floats = BlockPush(1);
  for (const ElementType type : {FLOAT32, BFLOAT16, FLOAT16}) {
    PushRequest request = As(type, floats);
    request.mutable_segments(0)->set_ordinal(next_ordinal_++);
    const size_t values = kBlockFloats * ElementBytes(type);
    EXPECT_TRUE(Push(request).ok());
    EXPECT_EQ(log.asked_bytes, request.ByteSizeLong() - values + kBlockFloats * sizeof(float));
    const size_t written = log.entries().back().size();
    EXPECT_GT(written, kBlockFloats * sizeof(float));
    EXPECT_LT(written, log.asked_bytes + 100);
  }
  plane_->Close(absl::UnavailableError("the end"));
}

TEST_F(DataPlaneTest, LogMustHaveRoomForDecodedFloatsOfAPushThatHasWaited) {
  FakeDurableLog log;
  Start(SYNC, 2);
  plane_->SetLog(log);
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Send(Method::kPush, As(BFLOAT16, RowPush(WorkerHeader(0, 1), 1, {2, 4})));
  ASSERT_FALSE(waiting->has_value());
  const uint64_t on_arrival = log.asked_bytes.exchange(0);
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE(waiting->value().status.ok()) << waiting->value().status;
  EXPECT_EQ(log.asked_bytes, on_arrival);
  plane_->Close(absl::UnavailableError("the end"));
}

// A waiting gradient keeps a small FLOAT32 message, and only the floats of a 16-bit one.
TEST_F(DataPlaneTest, WaitingSixteenBitGradientDoesNotKeepItsMessage) {
  for (const ElementType type : {FLOAT32, BFLOAT16, FLOAT16}) {
    Start(SYNC, 4);
    std::vector<std::weak_ptr<const void>> messages;
    for (const uint32_t rank : {3u, 2u, 1u, 0u}) {
      auto bytes = std::make_shared<std::string>(
          As(type, RowPush(WorkerHeader(rank, 0), 1, {1.0f + rank, 0.5f})).SerializeAsString());
      messages.push_back(bytes);
      CallContext context;
      context.deadline = clock_.Now() + std::chrono::seconds(10);
      absl::Status pushed = absl::UnknownError("no answer");
      const ByteView view(bytes->data(), bytes->size());
      plane_->Handle(
          Method::kPush, IncomingMessage{view, std::move(bytes)}, context,
          [&pushed](absl::Status status, OutgoingMessage) { pushed = std::move(status); });
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
    for (const auto& message : messages) EXPECT_EQ(message.expired(), type != FLOAT32);
    for (uint32_t rank = 0; rank < 4; ++rank) ASSERT_TRUE(EndStep(rank, 0).ok());
    for (const auto& message : messages) EXPECT_TRUE(message.expired());
    EXPECT_EQ(Row(1), (Floats{-2.5f, -0.5f}));
  }
}

}  // namespace
}  // namespace pawl
