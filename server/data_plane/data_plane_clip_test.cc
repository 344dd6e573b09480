// Steps that close in a phase of their own (Job.clip_global_norm).
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/testing/data_plane_fixture.h"

namespace pawl {
namespace {

class DataPlaneClipTest : public DataPlaneTest {
 protected:
  void SetUp() override {
    clip_global_norm_ = 1;
    Start(SYNC, 2);
  }

  // For `partitions`; empty: all.
  static EndStepRequest Request(EndStepRequest::Phase phase, uint32_t rank, uint64_t step,
                                const std::vector<uint32_t>& partitions = {}) {
    EndStepRequest request;
    *request.mutable_header() = WorkerHeader(rank, step);
    for (const uint32_t partition : partitions) request.add_partitions(partition);
    request.set_phase(phase);
    return request;
  }
  auto Await(uint32_t rank, uint64_t step, const std::vector<uint32_t>& partitions = {}) {
    return Send(Method::kEndStep, Request(EndStepRequest::AWAIT_ALL, rank, step, partitions));
  }
  absl::Status Close(uint32_t rank, uint64_t step, float scale,
                     const std::vector<uint32_t>& partitions = {}) {
    EndStepRequest request = Request(EndStepRequest::CLOSE, rank, step, partitions);
    request.set_scale(scale);
    return (*Send(Method::kEndStep, request))->status;
  }
  static std::vector<double> Squares(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EndStepResponse response;
    EXPECT_TRUE(DecodeSmall(answer.message.bytes, response).ok());
    return {response.squares().begin(), response.squares().end()};
  }

  const uint32_t home_ = PartitionOf(kTable, 1, kPartitions);
  const uint32_t other_ = (home_ + 1) % kPartitions;
};

TEST_F(DataPlaneClipTest, StepClosesWithTheScale) {
  ASSERT_TRUE(Push(RowPush(WorkerHeader(0, 0), 1, {12, 16})).ok());
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto squares = Await(0, 0, {other_, home_});
  EXPECT_FALSE(squares->has_value());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(squares->has_value());
  EXPECT_EQ(Squares(**squares), (std::vector<double>{0, 100})) << "in the request's order";
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  const auto push = Send(Method::kPush, RowPush(WorkerHeader(0, 1), 1, {1, 1}));
  EXPECT_FALSE(pull->has_value());
  EXPECT_FALSE(push->has_value());
  ASSERT_TRUE(Close(1, 0, 0.125f).ok());
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ(Values(**pull), (Floats{-0.75f, -1}));
  EXPECT_TRUE(push->has_value());
  // The others close it too, and a successor asks for the squares.
  EXPECT_TRUE(Close(0, 0, 0.125f).ok());
  EXPECT_EQ(Squares(**Await(1, 0, {home_})), (std::vector<double>{100}));
  EXPECT_EQ(Row(1), (Floats{-0.75f, -1}));
}

TEST_F(DataPlaneClipTest, RequestWithoutPartitionsMeansAll) {
  ASSERT_TRUE(EndStep(0, 0).ok());
  ASSERT_TRUE(EndStep(1, 0).ok());
  EXPECT_EQ(Squares(**Await(0, 0)), std::vector<double>(kPartitions));
  ASSERT_TRUE(Close(0, 0, 1).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(EndStep(rank, 1).ok());
}

// The next pulls wait in each partition for its own close.
TEST_F(DataPlaneClipTest, PartitionsCloseOneByOne) {
  ASSERT_TRUE(Push(RowPush(WorkerHeader(0, 0), 1, {2, 4})).ok());
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(EndStep(rank, 0).ok());
  ASSERT_TRUE(Close(0, 0, 0.5f, {other_}).ok());
  const auto pull = Send(Method::kPull, RowPull(WorkerHeader(0, 1), 1));
  EXPECT_FALSE(pull->has_value());
  // No rank ends a step before the one before has closed everywhere.
  EXPECT_EQ(EndStep(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Squares(**Await(0, 0, {home_, other_})), (std::vector<double>{5, 0}));
  ASSERT_TRUE(Close(1, 0, 0.5f, {home_}).ok());
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ(Values(**pull), (Floats{-0.5f, -1}));
}

TEST_F(DataPlaneClipTest, WaitForTheEndsHasADeadline) {
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting =
      Send(Method::kEndStep, Request(EndStepRequest::AWAIT_ALL, 0, 0), std::chrono::seconds(5));
  const auto moved = Await(0, 0, {home_});
  EXPECT_EQ(plane_->Counters(false).waiting_calls(), 2u);
  clock_.Advance(std::chrono::seconds(5));
  plane_->Tick();
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ((*waiting)->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(moved->has_value());
  plane_->AdoptRouting(Routing(2, static_cast<int>(home_)));
  ASSERT_TRUE(moved->has_value());
  EXPECT_TRUE((*moved)->status.GetPayload(kRoutingPayloadUrl).has_value()) << (*moved)->status;
  EXPECT_EQ(plane_->Counters(false).waiting_calls(), 0u);
}

TEST_F(DataPlaneClipTest, SupersededIncarnationGetsNoSquares) {
  ASSERT_TRUE(EndStep(0, 0).ok());
  const auto waiting = Await(0, 0, {home_});
  TakeOverRequest take;
  *take.mutable_header() = WorkerHeader(0, 0);
  take.mutable_header()->set_incarnation(2);
  for (uint32_t p = 0; p < kPartitions; ++p) take.add_partitions(p);
  ASSERT_TRUE((*Send(Method::kTakeOver, take))->status.ok());
  ASSERT_TRUE(EndStep(1, 0).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ((*waiting)->status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*Await(0, 0))->status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Close(0, 0, 1).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Close(1, 0, 1).ok());
}

// A small message must not cause much work.
TEST_F(DataPlaneClipTest, PartitionIsNamedOnce) {
  std::vector<uint32_t> all(kPartitions);
  for (uint32_t p = 0; p < kPartitions; ++p) all[p] = kPartitions - 1 - p;
  std::vector<uint32_t> with_one_more = all;
  with_one_more.push_back(kPartitions);
  const auto take_over = [this](const std::vector<uint32_t>& partitions) {
    TakeOverRequest request;
    *request.mutable_header() = WorkerHeader(0, 0);
    for (const uint32_t partition : partitions) request.add_partitions(partition);
    return (*Send(Method::kTakeOver, request))->status;
  };
  const auto end = [this](const std::vector<uint32_t>& partitions) {
    return (*Send(Method::kEndStep, Request(EndStepRequest::END, 0, 0, partitions)))->status;
  };
  const std::string before = plane_->Fingerprint(1)->SerializeAsString();
  for (const std::vector<uint32_t>& refused : {std::vector<uint32_t>{1, 1},
                                               {2, 1, 2},
                                               std::vector<uint32_t>(kPartitions + 1, 1),
                                               with_one_more}) {
    for (const absl::Status& status : {end(refused), take_over(refused), Close(0, 0, 1, refused),
                                       (*Await(0, 0, refused))->status}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(status.message().find("partitions "), std::string::npos) << status;
    }
  }
  EXPECT_EQ(end({1, kPartitions}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(end({kPartitions, kPartitions}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(plane_->Fingerprint(1)->SerializeAsString(), before);
  EXPECT_TRUE(take_over(all).ok());
  EXPECT_TRUE(end(all).ok());
}

TEST_F(DataPlaneClipTest, WrongRequestsChangeNothing) {
  ASSERT_TRUE(EndStep(0, 0).ok());
  EXPECT_EQ(Close(0, 0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*Await(1, 0))->status.code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(EndStep(1, 0).ok());
  const FingerprintResponse before = *plane_->Fingerprint(1);
  for (const float scale : {0.0f, 2.0f, NAN})
    EXPECT_EQ(Close(0, 0, scale).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*Send(Method::kEndStep, Request(static_cast<EndStepRequest::Phase>(7), 0, 0)))
                ->status.code(),
            absl::StatusCode::kInvalidArgument);
  EndStepRequest of_client = Request(EndStepRequest::CLOSE, 0, 0);
  *of_client.mutable_header() = ClientHeader();
  EXPECT_EQ((*Send(Method::kEndStep, of_client))->status.code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plane_->Fingerprint(1)->SerializeAsString(), before.SerializeAsString());

  clip_global_norm_ = 0;
  Start(SYNC, 1);
  ASSERT_TRUE(EndStep(0, 0).ok());
  EXPECT_EQ(Close(0, 0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*Await(0, 0))->status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pawl
