// What pulls wait for in BOUNDED and ASYNC mode, and how staleness is counted.
#include <chrono>

#include "client_lib/daemon/staleness_counts.h"
#include "gtest/gtest.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/testing/data_plane_fixture.h"

namespace pawl {
namespace {

constexpr uint64_t kKey = 1;

class DataPlaneStalenessTest : public DataPlaneTest {
 protected:
  std::shared_ptr<std::optional<Answer>> Pull(uint32_t rank, uint64_t step) {
    return Send(Method::kPull, RowPull(WorkerHeader(rank, step), kKey));
  }
  void PushStep(uint32_t rank, uint64_t step, float value = 1) {
    const absl::Status pushed = Push(RowPush(WorkerHeader(rank, step), kKey, {value, value}));
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  void EndOk(uint32_t rank, uint64_t step) {
    const absl::Status ended = EndStep(rank, step);
    ASSERT_TRUE(ended.ok()) << ended;
  }
};

// pawl-worker sends the pull of the next step before it pushes the present one.
TEST_F(DataPlaneStalenessTest, PullAheadMissesTheRanksOwnPush) {
  for (const auto& [mode, bound] : {std::pair(ASYNC, 0u), std::pair(BOUNDED, 1u)}) {
    Start(ConsistencyOf(mode, bound), 1);
    PushStep(0, 0);
    EndOk(0, 0);
    const auto pull = Pull(0, 2);
    ASSERT_TRUE(pull->has_value()) << "it does not wait for the end of step 1";
    EXPECT_EQ(Values(**pull), (std::vector<float>{-1, -1})) << "step 0 only";
  }
}

TEST_F(DataPlaneStalenessTest, ReadMyWritesWaitsForTheRanksOwnSteps) {
  for (const auto& [mode, bound] : {std::pair(ASYNC, 0u), std::pair(BOUNDED, 5u)}) {
    Consistency consistency = ConsistencyOf(mode, bound);
    consistency.set_read_my_writes(true);
    Start(consistency, 2);
    EXPECT_TRUE(Pull(0, 0)->has_value());
    const auto pull = Pull(0, 1);
    EXPECT_FALSE(pull->has_value());
    PushStep(0, 0, 3);
    PushStep(1, 0, 4);
    EndOk(1, 0);
    EXPECT_FALSE(pull->has_value()) << "the step of another rank has ended";
    EndOk(0, 0);
    ASSERT_TRUE(pull->has_value());
    EXPECT_EQ(Values(**pull), (std::vector<float>{-7, -7}));
    EXPECT_TRUE(Send(Method::kPull, RowPull(ClientHeader(), kKey))->has_value());
  }
}

TEST_F(DataPlaneStalenessTest, PullForItsOwnStepsEndsWithItsDeadline) {
  Consistency consistency = ConsistencyOf(ASYNC);
  consistency.set_read_my_writes(true);
  Start(consistency, 1);
  const auto pull =
      Send(Method::kPull, RowPull(WorkerHeader(0, 1), kKey), std::chrono::milliseconds(10));
  EXPECT_FALSE(pull->has_value());
  clock_.Advance(std::chrono::milliseconds(20));
  plane_->Tick();
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ((*pull)->status.code(), absl::StatusCode::kDeadlineExceeded);
  EndOk(0, 0);
}

TEST_F(DataPlaneStalenessTest, PullForItsOwnStepsFailsWhenItsPartitionMoves) {
  Consistency consistency = ConsistencyOf(ASYNC);
  consistency.set_read_my_writes(true);
  Start(consistency, 1);
  const auto pull = Pull(0, 1);
  EXPECT_FALSE(pull->has_value());
  plane_->AdoptRouting(Routing(2, static_cast<int>(PartitionOf(kTable, kKey, kPartitions))));
  ASSERT_TRUE(pull->has_value());
  EXPECT_EQ((*pull)->status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DataPlaneStalenessTest, PullsAndPushesAreCounted) {
  Start(ASYNC, 2);
  // Rank 0 pulls for steps 0 and 1, and is answered before rank 1 ends four steps.
  ASSERT_TRUE(Pull(0, 0)->has_value());
  ASSERT_TRUE(Pull(0, 1)->has_value());
  for (uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(Pull(1, step)->has_value());
    PushStep(1, step);
    EndOk(1, step);
  }
  PushStep(0, 0);
  EndOk(0, 0);
  PushStep(0, 1);
  // A repetition is not counted.
  PushStep(0, 1);
  const ServerCounters counters = plane_->Counters(/*may_be_old=*/false);
  // Rank 0's pulls were 0 and 1 ahead of the slowest clock, 0; rank 1's 0, 1, 2 and 3.
  EXPECT_EQ(counters.clock_staleness().sum(), 7u);
  EXPECT_EQ(counters.clock_staleness().counts(0), 2u);
  EXPECT_EQ(counters.clock_staleness().counts(1), 2u);
  EXPECT_EQ(counters.clock_staleness().counts(3), 1u);
  EXPECT_EQ(counters.staleness_max(), 3u);
  // Rank 1's gradients missed nothing. Rank 0's missed four steps of rank 1, the second one also
  // its own step 0.
  EXPECT_EQ(counters.update_staleness().sum(), 9u);
  EXPECT_EQ(counters.update_staleness().counts(0), 4u);
  EXPECT_EQ(counters.update_staleness().counts(4), 1u);
  EXPECT_EQ(counters.update_staleness().counts(5), 1u);
}

TEST_F(DataPlaneStalenessTest, PullThatOvertakesTheEndOfAStepIsCounted) {
  Start(ASYNC, 1);
  ASSERT_TRUE(Pull(0, 2)->has_value());
  // No step that the rank trains now.
  ASSERT_TRUE(Pull(0, 3)->has_value());
  const ServerCounters counters = plane_->Counters(/*may_be_old=*/false);
  EXPECT_EQ(counters.clock_staleness().sum(), 2u);
  EXPECT_EQ(counters.clock_staleness().counts(2), 1u);
}

TEST_F(DataPlaneStalenessTest, SyncModeCountsNothing) {
  Start(SYNC, 1);
  ASSERT_TRUE(Pull(0, 0)->has_value());
  PushStep(0, 0);
  EndOk(0, 0);
  const ServerCounters counters = plane_->Counters(/*may_be_old=*/false);
  EXPECT_FALSE(SummarizeStaleness(counters.clock_staleness()).has_value());
  EXPECT_FALSE(SummarizeStaleness(counters.update_staleness()).has_value());
}

}  // namespace
}  // namespace pawl
