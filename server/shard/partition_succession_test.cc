// Takeovers and releases of logical workers.
#include <cstdint>

#include "gtest/gtest.h"
#include "server/shard/partition.h"
#include "server/shard/testing/partition_fixture.h"

namespace pawl {
namespace {

TEST(PartitionSuccession, SuccessorMayEndAShorterStepExceptInSync) {
  for (const ConsistencyMode mode : {SYNC, ASYNC}) {
    Partition partition = MakePartition(Options(mode, 1));
    for (const uint64_t ordinal : {0, 2}) {
      ASSERT_TRUE(
          partition.Push(Worker(0, 0, 1), ordinal, kRows, MakeGradient({ordinal}, {2, 4})).ok());
    }
    EXPECT_EQ(partition.EndStep(Worker(0, 0, 2), 2).code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(partition.Push(Worker(0, 0, 2), 1, kRows, MakeGradient({1}, {2, 4})).ok());
    EXPECT_EQ(partition.EndStep(Worker(0, 0, 2), 2).code(),
              mode == SYNC ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk);
  }
}

TEST(PartitionSuccession, TakeOverSupersedesAndReturnsTheClock) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.EndStep(Worker(1, 0, 3), 0).ok());
  EXPECT_EQ(*partition.TakeOver(1, 4), 1u);
  EXPECT_EQ(*partition.TakeOver(1, 4), 1u);
  EXPECT_EQ(partition.TakeOver(1, 3).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(partition.TakeOver(2, 4).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(partition.Push(Worker(1, 1, 3), 0, kRows, MakeGradient({5}, {2, 4})).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(partition.EndStep(Worker(1, 1, 3), 0).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(partition.EndStep(Worker(1, 1, 4), 0).ok());
}

TEST(PartitionSuccession, ReleasedLogicalWorkerHoldsBackNoPull) {
  Partition partition = MakePartition(Options(BOUNDED, 3, /*staleness=*/1));
  const auto run_to = [&](uint32_t rank, uint64_t clock, uint64_t incarnation = 1) {
    while (partition.clock(rank) < clock) {
      ASSERT_TRUE(partition.EndStep(Worker(rank, partition.clock(rank), incarnation), 0).ok());
    }
  };
  run_to(0, 10);
  run_to(1, 8);
  run_to(2, 3);
  EXPECT_FALSE(partition.CanPull(9));
  ASSERT_TRUE(partition.Release(2, 1).ok());
  EXPECT_EQ(partition.min_clock(), 8u);
  EXPECT_TRUE(partition.CanPull(9));
  // That incarnation has ended.
  EXPECT_EQ(partition.EndStep(Worker(2, 3, 1), 0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(partition.TakeOver(2, 1).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(partition.Push(Worker(2, 3, 1), 0, kRows, MakeGradient({5}, {2, 4})).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(partition.Push(Worker(2, 3, 2), 0, kRows, MakeGradient({5}, {2, 4})).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // The successor repeats all of its steps, and does not hold the others back.
  EXPECT_EQ(*partition.TakeOver(2, 2), 3u);
  EXPECT_EQ(partition.min_clock(), 8u);
  EXPECT_TRUE(partition.CanPull(9));
  run_to(1, 12);
  EXPECT_EQ(partition.min_clock(), 8u);
  run_to(2, 9, 2);
  EXPECT_EQ(partition.min_clock(), 9u);
  // The release of an earlier incarnation arrives late.
  ASSERT_TRUE(partition.Release(2, 1).ok());
  EXPECT_EQ(partition.min_clock(), 9u);
}

TEST(PartitionSuccession, PullsBeyondTheBoundOfAReturnedRankAreReported) {
  Partition partition = MakePartition(Options(BOUNDED, 2, /*staleness=*/1));
  const auto run_to = [&](uint32_t rank, uint64_t clock, uint64_t incarnation) {
    while (partition.clock(rank) < clock) {
      ASSERT_TRUE(partition.EndStep(Worker(rank, partition.clock(rank), incarnation), 0).ok());
    }
  };
  run_to(1, 3, 1);
  ASSERT_TRUE(partition.Release(1, 1).ok());
  run_to(0, 10, 1);
  ASSERT_TRUE(partition.CanPull(11));
  EXPECT_FALSE(partition.ExceedsBound(11)) << "no pull waits for a rank without a host";
  EXPECT_EQ(*partition.TakeOver(1, 2), 3u);
  EXPECT_TRUE(partition.CanPull(11));
  EXPECT_FALSE(partition.ExceedsBound(4));
  EXPECT_TRUE(partition.ExceedsBound(5));
  EXPECT_TRUE(partition.ExceedsBound(11));
  EXPECT_EQ(partition.Staleness(0, 11), 1u);
  run_to(1, 9, 2);
  EXPECT_TRUE(partition.ExceedsBound(11));
  run_to(1, 10, 2);
  EXPECT_FALSE(partition.ExceedsBound(11));
  // Released once more while it catches up.
  ASSERT_TRUE(partition.Release(1, 2).ok());
  run_to(0, 20, 1);
  EXPECT_EQ(*partition.TakeOver(1, 3), 10u);
  EXPECT_TRUE(partition.ExceedsBound(21));
  ASSERT_TRUE(partition.Release(1, 3).ok());
  EXPECT_FALSE(partition.ExceedsBound(21));
}

TEST(PartitionSuccession, FirstReturnedRankDoesNotWaitForReleasedOnes) {
  Partition partition = MakePartition(Options(BOUNDED, 2, /*staleness=*/3));
  for (uint64_t step = 0; step < 10; ++step)
    ASSERT_TRUE(partition.EndStep(Worker(0, step), 0).ok());
  for (uint64_t step = 0; step < 6; ++step) ASSERT_TRUE(partition.EndStep(Worker(1, step), 0).ok());
  ASSERT_TRUE(partition.Release(0, 1).ok());
  ASSERT_TRUE(partition.Release(1, 1).ok());
  EXPECT_EQ(partition.min_clock(), 6u);
  EXPECT_EQ(*partition.TakeOver(0, 2), 10u);
  EXPECT_EQ(partition.min_clock(), 10u);
  EXPECT_TRUE(partition.CanPull(10));
}

TEST(PartitionSuccession, MinClockStaysWhenAllAreReleased) {
  Partition partition = MakePartition(Options(ASYNC, 2));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
  ASSERT_TRUE(partition.Release(0, 1).ok());
  ASSERT_TRUE(partition.Release(1, 1).ok());
  EXPECT_EQ(partition.min_clock(), 1u);
}

TEST(PartitionSuccession, SyncRefusesRelease) {
  Partition partition = MakePartition(Options(SYNC, 2));
  EXPECT_EQ(partition.Release(0, 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(partition.log_index(), 0u + 2);  // two tables
}

}  // namespace
}  // namespace pawl
