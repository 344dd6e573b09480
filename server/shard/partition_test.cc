#include "server/shard/partition.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "gtest/gtest.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/shard/testing/partition_fixture.h"

namespace pawl {
namespace {

TEST(Partition, AppliesClientPushOnArrivalExactlyOnce) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  EXPECT_EQ(Row(partition, 5), (Floats{10, 10}));
  EXPECT_EQ(*partition.Push(Client(3), 0, kRows, MakeGradient({5}, {1, 2})),
            PushOutcome::kAccepted);
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
  EXPECT_EQ(*partition.Push(Client(3), 0, kRows, MakeGradient({5}, {1, 2})),
            PushOutcome::kDuplicate);
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
  EXPECT_EQ(partition.counters().pushes_applied, 1u);
}

TEST(Partition, PullCreatesNoRow) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  Row(partition, 5);
  EXPECT_EQ(partition.row_count(), 0u);
  EXPECT_EQ(partition.FindTable(kRows)->Digest(), 0u);
}

TEST(Partition, NewIncarnationSupersedesTheOldOne) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  ASSERT_TRUE(partition.Push(Client(3, 2), 0, kRows, MakeGradient({5}, {1, 2})).ok());
  EXPECT_EQ(partition.Push(Client(3, 1), 7, kRows, MakeGradient({5}, {1, 2})).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(*partition.Push(Client(3, 3), 0, kRows, MakeGradient({5}, {1, 2})),
            PushOutcome::kAccepted);
  EXPECT_EQ(Row(partition, 5), (Floats{8, 6}));
}

TEST(Partition, SyncAppliesAStepOnceAllHaveEndedIt) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {2, 4})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {6, 8})).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{10, 10}));
  EXPECT_FALSE(partition.CanPull(1));
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  EXPECT_TRUE(partition.CanPull(1));
  EXPECT_FALSE(partition.CanPull(2));
  // The sum divided by the number of logical workers.
  EXPECT_EQ(Row(partition, 5), (Floats{6, 4}));
}

// Float addition is not associative: the sum of these values depends on the order.
TEST(Partition, SyncSumsInRankAndOrdinalOrder) {
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 3.0f, 1e7f, 0.25f};
  const auto run = [&](const std::vector<int>& arrival) {
    Partition partition = MakePartition(Options(SYNC, 3));
    std::vector<int> pushed(3, 0);
    for (const int i : arrival) {
      const uint32_t rank = i / 2;
      EXPECT_TRUE(partition
                      .Push(Worker(rank, 0), i % 2, kRows,
                            MakeGradient({5, 6}, {values[i], 1, values[i], 2}))
                      .ok());
      if (++pushed[rank] == 2) {
        EXPECT_TRUE(partition.EndStep(Worker(rank, 0), std::nullopt).ok());
      }
    }
    EXPECT_EQ(partition.version(), 1u);
    return Row(partition, 5);
  };
  std::vector<int> arrival = {0, 1, 2, 3, 4, 5};
  float sum = values[0];
  for (int i = 1; i < 6; ++i) sum += values[i];
  const Floats expected = run(arrival);
  EXPECT_EQ(expected[0], 10.0f - (1.0f / 3.0f) * sum);
  do {
    ASSERT_EQ(run(arrival), expected);
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

TEST(Partition, SyncRecognisesARecomputedStep) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.Push(Worker(0, 0, 1), 0, kRows, MakeGradient({5}, {2, 4})).ok());
  // Incarnation 1 dies here; incarnation 2 recomputes the step.
  EXPECT_EQ(*partition.Push(Worker(0, 0, 2), 0, kRows, MakeGradient({5}, {2, 4})),
            PushOutcome::kDuplicate);
  EXPECT_EQ(*partition.Push(Worker(0, 0, 2), 1, kRows, MakeGradient({6}, {2, 4})),
            PushOutcome::kAccepted);
  EXPECT_EQ(partition.Push(Worker(0, 0, 1), 1, kRows, MakeGradient({6}, {2, 4})).status().code(),
            absl::StatusCode::kAborted);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0, 2), std::nullopt).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0, 1), std::nullopt).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
  EXPECT_EQ(Row(partition, 6), (Floats{9, 8}));
}

TEST(Partition, EndStepIsIdempotentAndOrdered) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_EQ(partition.clock(0), 1u);
  EXPECT_EQ(partition.EndStep(Worker(0, 2), std::nullopt).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(partition.EndStep(Worker(0, 1, 0), std::nullopt).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(partition.clock(0), 1u);
}

TEST(Partition, OnlyLogicalWorkersEndSteps) {
  Partition partition = MakePartition(Options(SYNC, 1));
  const uint64_t before = partition.log_index();
  for (const uint32_t client : {0u, 1u, kMaxClients - 1}) {
    EXPECT_EQ(partition.CheckEndStep(Client(client), std::nullopt).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(partition.EndStep(Client(client), std::nullopt).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(partition.WouldCompleteStep(Client(client)));
  }
  EXPECT_EQ(partition.log_index(), before);
  EXPECT_EQ(partition.version(), 0u);
}

TEST(Partition, EndStepWithAMissingPushIsRefused) {
  Partition partition = MakePartition(Options(SYNC, 1));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 1, kRows, MakeGradient({5}, {2, 4})).ok());
  EXPECT_EQ(partition.EndStep(Worker(0, 0), std::nullopt).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({6}, {2, 4})).ok());
  EXPECT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
}

TEST(Partition, PushOfAnEndedStepIsADuplicate) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {1, 1})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_EQ(*partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {1, 1})),
            PushOutcome::kDuplicate);
  EXPECT_EQ(partition.Push(Worker(0, 2), 0, kRows, MakeGradient({5}, {1, 1})).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Row(partition, 5), (Floats{9, 9}));
}

}  // namespace

class PartitionSaboteur {
 public:
  // As if min_clock were computed incorrectly.
  static void SetMinClock(Partition& partition, uint64_t clock) { partition.min_clock_ = clock; }
};

namespace {

TEST(Partition, PullThatBreaksTheBoundCrashes) {
  for (const uint32_t ranks : {2u, 100u}) {
    Partition partition = MakePartition(Options(BOUNDED, ranks, /*staleness=*/2));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      ASSERT_TRUE(partition.EndStep(Worker(rank, 0), 0).ok());
    PartitionSaboteur::SetMinClock(partition, 7);
    ASSERT_TRUE(partition.CanPull(4)) << "it trusts min_clock";
    EXPECT_DEATH(partition.Staleness(0, 4), "");
    EXPECT_EQ(partition.Staleness(0, 3), 0u);
  }
}

TEST(Partition, BoundedPullsWaitForTheSlowestWorker) {
  Partition partition = MakePartition(Options(BOUNDED, 2, /*staleness=*/2));
  EXPECT_TRUE(partition.CanPull(2));
  EXPECT_FALSE(partition.CanPull(3));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_EQ(partition.Staleness(0, 2), 2u);
  EXPECT_EQ(partition.Staleness(1, 2), 0u);  // not its step
  EXPECT_FALSE(partition.CanPull(3));
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  EXPECT_TRUE(partition.CanPull(3));
  EXPECT_DEATH(partition.Staleness(0, 4), "");
}

TEST(Partition, AsyncAppliesAtOnceWithoutWaiting) {
  Partition partition = MakePartition(Options(ASYNC, 2));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {1, 2})).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
  EXPECT_TRUE(partition.CanPull(1000));
}

TEST(Partition, ReadMyWritesNeedsTheEndOfTheRanksOwnStep) {
  PartitionOptions options = Options(BOUNDED, 2, /*staleness=*/2);
  EXPECT_TRUE(MakePartition(options).HasOwnSteps(0, 1)) << "not asked for";
  options.consistency.set_read_my_writes(true);
  Partition partition = MakePartition(options);
  EXPECT_TRUE(partition.HasOwnSteps(0, 0));
  EXPECT_FALSE(partition.HasOwnSteps(0, 1));
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  EXPECT_FALSE(partition.HasOwnSteps(0, 1));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_TRUE(partition.HasOwnSteps(0, 1));
  EXPECT_FALSE(partition.HasOwnSteps(0, 2));
}

TEST(Partition, StalenessAwareDividesByTheLeadOfTheFastestWorker) {
  PartitionOptions options = Options(ASYNC, 3);
  options.consistency.set_staleness_aware(true);
  Partition partition = MakePartition(options);
  for (uint64_t step = 0; step < 4; ++step)
    ASSERT_TRUE(partition.EndStep(Worker(2, step), std::nullopt).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  // Rank 0 is 4 steps behind, rank 1 is 3 behind, and rank 2 is the fastest.
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {1, 2})).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{9.75f, 9.5f}));
  ASSERT_TRUE(partition.Push(Worker(1, 1), 0, kRows, MakeGradient({6}, {3, 6})).ok());
  EXPECT_EQ(Row(partition, 6), (Floats{10 - (1.0f / 3) * 3, 10 - (1.0f / 3) * 6}));
  ASSERT_TRUE(partition.Push(Worker(2, 4), 0, kRows, MakeGradient({7}, {1, 2})).ok());
  EXPECT_EQ(Row(partition, 7), (Floats{9, 8}));
  // Clients have no clock.
  ASSERT_TRUE(partition.Push(Client(3), 0, kRows, MakeGradient({8}, {1, 2})).ok());
  EXPECT_EQ(Row(partition, 8), (Floats{9, 8}));
  // Without the fastest, rank 1 leads by one step.
  ASSERT_TRUE(partition.Release(2, 1).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 1, kRows, MakeGradient({9}, {1, 2})).ok());
  EXPECT_EQ(Row(partition, 9), (Floats{9, 8}));
}

TEST(Partition, BackupWorkersCloseTheStepWithoutTheStraggler) {
  Partition partition = MakePartition(Options(SYNC, 3, 0, /*backup=*/1));
  ASSERT_TRUE(
      partition.Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {1, 1})).ok());  // ends too late
  ASSERT_TRUE(partition.Push(Worker(2, 0), 0, kRows, MakeGradient({5}, {2, 2})).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {4, 4})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(2, 0), std::nullopt).ok());
  EXPECT_EQ(partition.version(), 0u);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_EQ(partition.version(), 1u);
  EXPECT_EQ(Row(partition, 5), (Floats{7, 7}));  // 10 - (4 + 2) / 2
  EXPECT_EQ(*partition.Push(Worker(1, 0), 1, kRows, MakeGradient({5}, {1, 1})), PushOutcome::kLate);
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{7, 7}));
  EXPECT_EQ(partition.counters().pushes_late, 2u);
  // It is on time again.
  ASSERT_TRUE(partition.Push(Worker(1, 1), 0, kRows, MakeGradient({5}, {2, 2})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 1), std::nullopt).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 1), std::nullopt).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{6, 6}));
}

TEST(Partition, PushExcludedAtTheCloseCountsAsLate) {
  Partition partition = MakePartition(Options(SYNC, 2, 0, /*backup=*/1));
  ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {1, 1})).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {4, 4})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{6, 6}));
  EXPECT_EQ(partition.counters().pushes_applied, 1u);
  EXPECT_EQ(partition.counters().pushes_late, 1u);
}

TEST(Partition, StagingLimitNeverBlocksStepsWithBackupWorkers) {
  PartitionOptions options = Options(SYNC, 3, 0, /*backup=*/1);
  options.max_staged_bytes = 16;
  Partition partition = MakePartition(options);
  ASSERT_TRUE(partition.Push(Worker(2, 0), 0, kRows, MakeGradient({5}, {2, 2})).ok());
  ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {2, 2})).ok());
  EXPECT_EQ(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {2, 2})).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(partition.Push(Worker(2, 0), 1, kRows, MakeGradient({6}, {2, 2})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), std::nullopt).ok());
  ASSERT_TRUE(partition.EndStep(Worker(2, 0), std::nullopt).ok());
  EXPECT_EQ(partition.version(), 1u);
}

TEST(Partition, RestoreBestBringsBackTheWeights) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  ASSERT_TRUE(partition.Push(Client(0), 0, kRows, MakeGradient({1}, {1, 1})).ok());
  partition.KeepBest(1);
  const uint32_t digest = partition.FindTable(kRows)->Digest();
  ASSERT_TRUE(partition.Push(Client(0), 1, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})).ok());
  partition.KeepBest(1);  // the same step: changes nothing
  EXPECT_NE(partition.FindTable(kRows)->Digest(), digest);
  partition.RestoreBest();
  EXPECT_EQ(Row(partition, 1), (Floats{9, 9}));
  EXPECT_EQ(Row(partition, 2), (Floats{10, 10}));
  EXPECT_EQ(partition.FindTable(kRows)->Digest(), digest);
}

// A job may end with the best parameters between two evaluations. A longer job that continues from
// there reuses the number of that evaluation.
TEST(Partition, KeptBestKeepsItsStepThroughARestore) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  ASSERT_TRUE(partition.Push(Client(0), 0, kRows, MakeGradient({1}, {1, 1})).ok());
  partition.KeepBest(450);
  partition.RestoreBest();
  std::string bytes;
  SavePartition(partition, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  auto restored = LoadPartition(0, partition.options(), ByteView(bytes.data(), bytes.size()));
  ASSERT_TRUE(restored.ok()) << restored.status();
  ASSERT_TRUE(restored->Push(Client(0), 1, kRows, MakeGradient({1}, {1, 1})).ok());
  restored->KeepBest(450);
  restored->KeepBest(500);
  ASSERT_TRUE(restored->Push(Client(0), 2, kRows, MakeGradient({1}, {1, 1})).ok());
  restored->RestoreBest();
  EXPECT_EQ(Row(*restored, 1), (Floats{8, 8}));
}

// A block fragmented anywhere, even inside a number, is the same block.
TEST(Partition, FragmentedBlocksGiveTheSameBits) {
  std::mt19937 random(5);
  std::vector<float> values(kBlockElements + 3);
  for (float& value : values) value = static_cast<float>(random() % 1000) / 7.0f;
  const std::vector<uint64_t> keys = {0, 1};
  const auto digest = [&](Partition partition, const Sender& sender,
                          const std::vector<size_t>& splits) {
    Gradient gradient;
    gradient.keys = ByteView(keys.data(), keys.size() * 8);
    const char* data = reinterpret_cast<const char*>(values.data());
    size_t begin = 0;
    for (const size_t split : splits) {
      gradient.values.Append(data + begin, split - begin);
      begin = split;
    }
    gradient.values.Append(data + begin, values.size() * 4 - begin);
    EXPECT_TRUE(partition.Push(sender, 0, kBlocks, gradient).ok());
    if (sender.kind == Sender::Kind::kLogicalWorker) {
      EXPECT_TRUE(partition.EndStep(sender, std::nullopt).ok());
    }
    return partition.FindTable(kBlocks)->Digest();
  };
  const uint32_t whole = digest(MakePartition(Options(ASYNC, 1)), Client(0), {});
  for (int round = 0; round < 50; ++round) {
    std::vector<size_t> splits(random() % 20);
    for (size_t& split : splits) split = random() % (values.size() * 4);
    std::sort(splits.begin(), splits.end());
    ASSERT_EQ(digest(MakePartition(Options(ASYNC, 1)), Client(0), splits), whole);
    ASSERT_EQ(digest(MakePartition(Options(SYNC, 1)), Worker(0, 0), splits), whole);
  }
}

TEST(Partition, EndStepWithMissingSegmentsIsRefused) {
  for (const ConsistencyMode mode : {SYNC, BOUNDED, ASYNC}) {
    Partition partition = MakePartition(Options(mode, 1));
    ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {2, 4})).ok());
    EXPECT_EQ(partition.EndStep(Worker(0, 0), 2).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(partition.CheckEndStep(Worker(0, 0), 2).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(partition.clock(0), 0u);
    ASSERT_TRUE(partition.Push(Worker(0, 0), 1, kRows, MakeGradient({6}, {2, 4})).ok());
    EXPECT_TRUE(partition.EndStep(Worker(0, 0), 2).ok());
    EXPECT_EQ(partition.clock(0), 1u);
    EXPECT_TRUE(partition.EndStep(Worker(0, 0), 7).ok());  // already ended
    EXPECT_EQ(partition.EndStep(Worker(0, 1), 1).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(partition.EndStep(Worker(0, 1), 0).ok());
  }
}

TEST(Partition, TableIsCreatedOnceWithOneSpec) {
  Partition partition(0, Options(ASYNC, 1));
  ASSERT_TRUE(partition.CreateTable(Schema(kRows)).ok());
  ASSERT_TRUE(partition.Push(Client(0), 0, kRows, MakeGradient({1}, {1, 1})).ok());
  EXPECT_TRUE(partition.CreateTable(Schema(kRows)).ok());
  EXPECT_EQ(Row(partition, 1), (Floats{9, 9}));
  EXPECT_EQ(partition.CreateTable(Schema(kRows, 5)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(partition.log_index(), 2u);
}

TEST(Partition, LogIndexCountsChanges) {
  Partition partition(0, Options(BOUNDED, 2, 1));
  uint64_t expected = 0;
  const auto changes = [&](bool as_expected) {
    EXPECT_TRUE(as_expected) << "change " << expected + 1;
    EXPECT_EQ(partition.log_index(), ++expected);
  };
  const auto leaves = [&](bool as_expected) {
    EXPECT_TRUE(as_expected) << "after change " << expected;
    EXPECT_EQ(partition.log_index(), expected);
  };
  const auto push = [&](const Sender& sender, uint64_t ordinal) {
    return partition.Push(sender, ordinal, kRows, MakeGradient({5}, {1, 1}));
  };
  leaves(true);
  changes(partition.CreateTable(Schema(kRows)).ok());
  leaves(partition.CreateTable(Schema(kRows)).ok());
  changes(push(Client(0), 0).value() == PushOutcome::kAccepted);
  leaves(push(Client(0), 0).value() == PushOutcome::kDuplicate);
  leaves(!push(Client(1), kPushWindow).ok());
  changes(push(Worker(0, 0), 0).value() == PushOutcome::kAccepted);
  leaves(push(Worker(0, 0, 9), 0).value() == PushOutcome::kDuplicate);
  // The duplicate has superseded no incarnation.
  changes(partition.EndStep(Worker(0, 0), 1).ok());
  leaves(partition.EndStep(Worker(0, 0, 9), 1).ok());
  leaves(push(Worker(0, 0, 9), 0).value() == PushOutcome::kDuplicate);
  leaves(!partition.EndStep(Worker(0, 5), 0).ok());
  changes(partition.TakeOver(0, 2).ok());
  leaves(partition.TakeOver(0, 2).ok());
  leaves(partition.Release(0, 1).ok());
  changes(partition.Release(0, 2).ok());
  leaves(partition.Release(0, 2).ok());
  partition.RestoreBest();
  leaves(true);  // none is kept
  partition.KeepBest(3);
  changes(true);
  partition.KeepBest(3);
  leaves(true);
  partition.KeepBest(2);
  leaves(true);
  partition.RestoreBest();
  changes(true);
}

// A repeated RestoreBest must not undo what a client has pushed since.
TEST(Partition, BestIsRestoredOncePerTraining) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  EXPECT_FALSE(partition.ShouldRestoreBest()) << "none is kept";
  partition.KeepBest(1);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  EXPECT_TRUE(partition.ShouldRestoreBest());
  partition.RestoreBest();
  ASSERT_TRUE(partition.Push(Client(0), 0, kRows, MakeGradient({1}, {1, 1})).ok());
  EXPECT_FALSE(partition.ShouldRestoreBest());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  EXPECT_FALSE(partition.ShouldRestoreBest()) << "a repeated message";
  ASSERT_TRUE(partition.EndStep(Worker(0, 1), 0).ok());
  EXPECT_TRUE(partition.ShouldRestoreBest());
}

TEST(Partition, CutStepCountsStepsOfAllNeededWorkers) {
  Partition sync = MakePartition(Options(SYNC, 2, 0, /*backup=*/1));
  ASSERT_TRUE(sync.EndStep(Worker(0, 0), 0).ok());
  EXPECT_EQ(sync.CutStep(), 1u);
  Partition bounded = MakePartition(Options(BOUNDED, 2, 3));
  ASSERT_TRUE(bounded.EndStep(Worker(0, 0), 0).ok());
  EXPECT_EQ(bounded.CutStep(), 0u);
  ASSERT_TRUE(bounded.EndStep(Worker(1, 0), 0).ok());
  EXPECT_EQ(bounded.CutStep(), 1u);
}

// Logical worker 0 has no data here in step 1, and ends it before logical worker 1 ends step 0.
TEST(Partition, ReopenedStepIsEndedAgainByAll) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 1), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
  ASSERT_EQ(partition.version(), 1u);
  ASSERT_EQ(partition.clock(0), 2u);
  const uint64_t before = partition.log_index();
  ASSERT_TRUE(partition.ReopenStep().ok());
  EXPECT_EQ(partition.clock(0), 1u);
  EXPECT_EQ(partition.log_index(), before + 1);
  ASSERT_TRUE(partition.ReopenStep().ok());
  EXPECT_EQ(partition.log_index(), before + 1);

  ASSERT_TRUE(partition.EndStep(Worker(1, 1), 0).ok());
  EXPECT_EQ(partition.version(), 1u);
  ASSERT_TRUE(partition.Push(Worker(0, 1), 0, kRows, MakeGradient({5}, {2, 4})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 1), 1).ok());
  EXPECT_EQ(partition.version(), 2u);
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
}

// How far it is behind depends on the moment at which the partition was saved.
TEST(Partition, WorkerThatIsBehindStartsWithTheReopenedStep) {
  Partition partition = MakePartition(Options(SYNC, 3, 0, /*backup=*/1));
  for (uint64_t step = 0; step < 2; ++step) {
    for (const uint32_t rank : {0u, 2u}) ASSERT_TRUE(partition.EndStep(Worker(rank, step), 0).ok());
  }
  // A push for a closed step, with a gap.
  ASSERT_EQ(partition.Push(Worker(1, 0), 1, kRows, MakeGradient({5}, {2, 4})).value(),
            PushOutcome::kLate);
  ASSERT_EQ(partition.version(), 2u);
  ASSERT_EQ(partition.clock(1), 0u);
  const uint64_t before = partition.log_index();
  ASSERT_TRUE(partition.ReopenStep().ok());
  EXPECT_EQ(partition.log_index(), before + 1);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(partition.clock(rank), 2u) << rank;
  EXPECT_EQ(partition.min_clock(), 2u);
  ASSERT_TRUE(partition.ReopenStep().ok());
  EXPECT_EQ(partition.log_index(), before + 1);

  // It counts in that step, starting with its first segment.
  ASSERT_EQ(partition.Push(Worker(1, 2), 0, kRows, MakeGradient({5}, {2, 4})).value(),
            PushOutcome::kAccepted);
  ASSERT_TRUE(partition.EndStep(Worker(1, 2), 1).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 2), 0).ok());
  EXPECT_EQ(partition.version(), 3u);
  EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
}

TEST(Partition, OtherModesDoNotReopenSteps) {
  for (const ConsistencyMode mode : {ASYNC, BOUNDED}) {
    Partition partition = MakePartition(Options(mode, 2, 3));
    ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
    ASSERT_TRUE(partition.Push(Worker(1, 0), 1, kRows, MakeGradient({5}, {2, 4})).ok());
    const uint64_t before = partition.log_index();
    ASSERT_TRUE(partition.ReopenStep().ok());
    EXPECT_EQ(partition.log_index(), before);
    EXPECT_EQ(partition.clock(0), 1u);
    EXPECT_EQ(partition.clock(1), 0u);
    EXPECT_EQ(partition.Push(Worker(1, 0), 1, kRows, MakeGradient({5}, {2, 4})).value(),
              PushOutcome::kDuplicate);
  }
}

TEST(Partition, StepWithGradientsIsNotReopened) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {2, 4})).ok());
  EXPECT_EQ(partition.ReopenStep().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 1).ok());
  EXPECT_EQ(partition.ReopenStep().code(), absl::StatusCode::kFailedPrecondition);
}

// Two replicas that get the same calls are equal, whatever the calls.
TEST(Partition, SameInputsGiveTheSameBits) {
  const auto run = [](uint32_t seed) {
    std::mt19937 random(seed);
    Partition partition = MakePartition(Options(BOUNDED, 3, 2));
    std::vector<uint64_t> step(3, 0), ordinal(3, 0);
    for (int i = 0; i < 3000; ++i) {
      const uint32_t rank = random() % 3;
      if (random() % 4 == 0) {
        EXPECT_TRUE(partition.EndStep(Worker(rank, step[rank]++), std::nullopt).ok());
        ordinal[rank] = 0;
      } else {
        const float value = static_cast<float>(random() % 100) / 3.0f;
        EXPECT_TRUE(
            partition
                .Push(Worker(rank, step[rank]), ordinal[rank]++, kRows,
                      MakeGradient({random() % 50, random() % 50}, {value, value, -value, 1}))
                .ok());
      }
    }
    return partition.FindTable(kRows)->Digest();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace pawl
