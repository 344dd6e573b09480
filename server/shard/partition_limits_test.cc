// Limits on what a partition keeps: rows, early gradients and their messages.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/shard/partition.h"
#include "server/shard/testing/partition_fixture.h"

namespace pawl {
namespace {

TEST(PartitionLimits, RefusesRowsBeyondItsLimit) {
  PartitionOptions options = Options(ASYNC, 1);
  options.max_rows = 2;
  Partition partition = MakePartition(options);
  ASSERT_TRUE(partition.Push(Client(0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})).ok());
  EXPECT_EQ(partition.Push(Client(0), 1, kRows, MakeGradient({1, 3}, {1, 1, 1, 1})).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Row(partition, 1), (Floats{9, 9}));
  // Existing rows can still be trained.
  EXPECT_EQ(*partition.Push(Client(0), 1, kRows, MakeGradient({2, 1}, {1, 1, 1, 1})),
            PushOutcome::kAccepted);
}

TEST(PartitionLimits, ReplaysThePrimarysPushesDespiteLocalLimits) {
  PartitionOptions options = Options(SYNC, 2);
  options.max_rows = 1;
  options.max_staged_bytes = 1;
  Partition partition = MakePartition(options);
  EXPECT_FALSE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})).ok());
  EXPECT_EQ(*partition.PushReplicated(Worker(1, 0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})),
            PushOutcome::kAccepted);
  EXPECT_EQ(*partition.PushReplicated(Worker(1, 0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})),
            PushOutcome::kDuplicate);
}

TEST(PartitionLimits, EarlyGradientsAreBoundedAndTheNextRankIsAccepted) {
  PartitionOptions options = Options(SYNC, 2);
  options.max_staged_bytes = 32 + kEarlyGradientBytes;
  Partition partition = MakePartition(options);
  ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})).ok());
  EXPECT_EQ(partition.Push(Worker(1, 0), 1, kRows, MakeGradient({3}, {1, 1})).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(
      partition.Push(Worker(0, 0), 0, kRows, MakeGradient({1, 2, 3, 4, 5}, Floats(10, 1))).ok());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), std::nullopt).ok());
  EXPECT_TRUE(partition.Push(Worker(1, 0), 1, kRows, MakeGradient({3}, {1, 1})).ok());
}

TEST(PartitionLimits, GradientsOfTheNextRankAreBoundedAndItsNextOneIsAccepted) {
  PartitionOptions options = Options(SYNC, 1);
  options.max_staged_bytes = 32 + kEarlyGradientBytes;
  Partition partition = MakePartition(options);
  const auto push = [&](uint64_t ordinal) {
    return partition.Push(Worker(0, 0), ordinal, kRows, MakeGradient({1, 2}, {1, 1, 1, 1}));
  };
  ASSERT_TRUE(push(2).ok());
  EXPECT_EQ(push(1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(push(3).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(*push(2), PushOutcome::kDuplicate);
  // The order of the ordinals is always accepted.
  for (const uint64_t ordinal : {0, 1, 3, 4}) EXPECT_TRUE(push(ordinal).ok()) << ordinal;
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 5).ok());
  EXPECT_EQ(Row(partition, 1), (Floats{5, 5}));
}

TEST(PartitionLimits, BackupTakesGradientsThatItsPrimaryTookOutOfOrder) {
  PartitionOptions options = Options(SYNC, 1);
  options.max_staged_bytes = 1;
  Partition partition = MakePartition(options);
  for (const uint64_t ordinal : {3, 1, 2, 0}) {
    EXPECT_EQ(
        *partition.PushReplicated(Worker(0, 0), ordinal, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})),
        PushOutcome::kAccepted);
  }
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 4).ok());
  EXPECT_EQ(Row(partition, 1), (Floats{6, 6}));
}

TEST(PartitionLimits, EarlyGradientsWithoutKeysAreBounded) {
  PartitionOptions options = Options(SYNC, 2);
  options.max_staged_bytes = 10 * kEarlyGradientBytes;
  Partition partition = MakePartition(options);
  for (uint64_t ordinal = 0; ordinal < 10; ++ordinal)
    ASSERT_TRUE(partition.Push(Worker(1, 0), ordinal, kRows, Gradient()).ok());
  EXPECT_EQ(partition.Push(Worker(1, 0), 10, kRows, Gradient()).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  EXPECT_TRUE(partition.Push(Worker(1, 0), 10, kRows, Gradient()).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 11).ok());
  EXPECT_EQ(partition.version(), 1u);
}

TEST(PartitionLimits, EarlyGradientKeepsOnlySmallMessages) {
  for (const uint32_t backup : {0, 1}) {
    Partition partition = MakePartition(Options(SYNC, 2, 0, backup));
    const auto push = [&](uint64_t ordinal, size_t message_bytes) {
      Gradient gradient = MakeGradient({1}, {2, 2});
      gradient.owner_bytes = message_bytes;
      std::weak_ptr<const void> message = gradient.owner;
      EXPECT_TRUE(partition.Push(Worker(1, 0), ordinal, kRows, std::move(gradient)).ok());
      return message;
    };
    const auto unknown = push(0, 0);
    const auto large = push(1, kMaxKeptMessageBytes + 1);
    const auto fits = push(2, kMaxKeptMessageBytes - 100);
    const auto one_too_many = push(3, 101);
    const auto fits_as_well = push(4, 100);
    EXPECT_TRUE(unknown.expired());
    EXPECT_TRUE(large.expired());
    EXPECT_FALSE(fits.expired());
    EXPECT_TRUE(one_too_many.expired());
    EXPECT_FALSE(fits_as_well.expired());
    ASSERT_TRUE(partition.EndStep(Worker(1, 0), 5).ok());
    ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
    EXPECT_TRUE(fits.expired());
    EXPECT_EQ(Row(partition, 1), backup == 0 ? (Floats{5, 5}) : (Floats{0, 0}));
  }
}

TEST(PartitionLimits, EarlyGradientWithItsOwnMemoryIsNotCopied) {
  Partition partition = MakePartition(Options(SYNC, 2));
  std::vector<std::weak_ptr<const void>> kept;
  for (uint64_t ordinal = 0; ordinal < 2; ++ordinal) {
    std::vector<uint64_t> keys(400000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    Gradient gradient = MakeGradient(keys, Floats(2 * keys.size(), 1));
    gradient.owner_bytes = gradient.keys.size() + gradient.values.size();
    EXPECT_GT(2 * gradient.owner_bytes, kMaxKeptMessageBytes);
    kept.push_back(gradient.owner);
    ASSERT_TRUE(partition.Push(Worker(1, 0), ordinal, kRows, std::move(gradient)).ok());
  }
  EXPECT_FALSE(kept[0].expired());
  EXPECT_FALSE(kept[1].expired());
  // It leaves the room for messages unchanged.
  Gradient gradient = MakeGradient({1}, {2, 2});
  gradient.owner_bytes = kMaxKeptMessageBytes;
  const std::weak_ptr<const void> message = gradient.owner;
  ASSERT_TRUE(partition.Push(Worker(1, 0), 2, kRows, std::move(gradient)).ok());
  EXPECT_FALSE(message.expired());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 3).ok());
  EXPECT_EQ(Row(partition, 1), (Floats{8, 8}));
}

// The gradients of the next rank wait for the close, in no more memory than the limits allow.
TEST(PartitionLimits, AddedGradientsFreeRoomForMessages) {
  Partition partition = MakePartition(Options(SYNC, 2));
  constexpr size_t kKeys = kMaxWaitingBytes / 16 / 4;
  std::vector<uint64_t> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) keys[i] = i;
  const auto push = [&](uint32_t rank, uint64_t ordinal, size_t message_bytes) {
    Gradient gradient = MakeGradient(keys, Floats(2 * kKeys, 2));
    gradient.owner_bytes = message_bytes;
    std::weak_ptr<const void> message = gradient.owner;
    EXPECT_TRUE(partition.Push(Worker(rank, 0), ordinal, kRows, std::move(gradient)).ok());
    return message;
  };
  const auto first = push(0, 0, kMaxKeptMessageBytes);
  EXPECT_FALSE(first.expired());
  EXPECT_TRUE(push(0, 1, kMaxKeptMessageBytes).expired());  // copied
  EXPECT_TRUE(push(0, 2, kMaxKeptMessageBytes).expired());
  EXPECT_TRUE(push(0, 3, kMaxKeptMessageBytes).expired());
  EXPECT_FALSE(first.expired());
  EXPECT_TRUE(push(0, 4, kMaxKeptMessageBytes).expired());
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(push(0, 5, kMaxKeptMessageBytes).expired());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 6).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
  EXPECT_EQ(Row(partition, 1), (Floats{4, 4}));
}

TEST(PartitionLimits, MessageCountsOnceForGradientsThatFollowEachOther) {
  Partition partition = MakePartition(Options(SYNC, 2));
  const auto data = std::make_shared<GradientData>(GradientData{{1, 2, 3}, Floats(6, 2)});
  for (uint64_t ordinal = 0; ordinal < 3; ++ordinal) {
    const Gradient gradient{ByteView(&data->keys[ordinal], sizeof(uint64_t)),
                            ByteView(&data->values[2 * ordinal], 2 * sizeof(float)), data,
                            kMaxKeptMessageBytes - 100};
    ASSERT_TRUE(partition.Push(Worker(1, 0), ordinal, kRows, gradient).ok());
  }
  EXPECT_EQ(data.use_count(), 4);
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 3).ok());
  EXPECT_EQ(data.use_count(), 1);
  EXPECT_EQ(Row(partition, 3), (Floats{9, 9}));
}

// The address of a freed message is used again, so it does not identify a message.
TEST(PartitionLimits, AnotherMessageAtTheSameAddressCountsToo) {
  Partition partition = MakePartition(Options(SYNC, 2));
  const auto push = [&](uint64_t ordinal) {
    Gradient gradient = MakeGradient({1}, {2, 2});
    gradient.owner = std::shared_ptr<const void>(gradient.owner, &partition);
    gradient.owner_bytes = kMaxKeptMessageBytes;
    std::weak_ptr<const void> message = gradient.owner;
    EXPECT_TRUE(partition.Push(Worker(0, 0), ordinal, kRows, std::move(gradient)).ok());
    return message;
  };
  EXPECT_FALSE(push(0).expired());
  EXPECT_TRUE(push(1).expired()) << "copied";
}

// A large gradient is added at once, and before it what waits for the same table.
TEST(PartitionLimits, LargeGradientFreesRoomForMessages) {
  Partition partition = MakePartition(Options(SYNC, 2));
  const auto push = [&](uint64_t ordinal, size_t keys) {
    std::vector<uint64_t> all(keys);
    for (size_t i = 0; i < keys; ++i) all[i] = i;
    Gradient gradient = MakeGradient(all, Floats(2 * keys, 1));
    gradient.owner_bytes = kMaxKeptMessageBytes;
    std::weak_ptr<const void> message = gradient.owner;
    EXPECT_TRUE(partition.Push(Worker(0, 0), ordinal, kRows, std::move(gradient)).ok());
    return message;
  };
  const auto small = push(0, 1);
  EXPECT_FALSE(small.expired());
  push(1, kMaxWaitingBytes / 16 + 1);
  EXPECT_TRUE(small.expired());
  EXPECT_FALSE(push(2, 1).expired());
}

// Gradients that wait make no rows, and no reader sees them.
TEST(PartitionLimits, WaitingGradientsCreateNoRows) {
  Partition partition = MakePartition(Options(SYNC, 2));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({1, 2}, {1, 1, 1, 1})).ok());
  const uint32_t digest = partition.FindTable(kRows)->Digest();
  EXPECT_EQ(digest, MakePartition(Options(SYNC, 2)).FindTable(kRows)->Digest());
  EXPECT_EQ(partition.row_count(), 0u);
  EXPECT_EQ(Row(partition, 1), (Floats{10, 10}));
}

#if !defined(PAWL_ASAN) && !defined(PAWL_TSAN)
TEST(PartitionLimits, GradientsWithoutKeysOfTheNextRankTakeNoMemory) {
  Partition partition = MakePartition(Options(SYNC, 1));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, Gradient()).ok());
  const size_t before = mallinfo2().uordblks;
  for (uint64_t ordinal = 1; ordinal < 10000; ++ordinal)
    ASSERT_TRUE(partition.Push(Worker(0, 0), ordinal, kRows, Gradient()).ok());
  EXPECT_LT(mallinfo2().uordblks, before + 10000);
}

constexpr uint32_t kManyRanks = 10000;

TEST(PartitionLimits, RankWithoutOpenPushesCostsAtMost32Bytes) {
  constexpr uint32_t kPartitions = 16;
  for (const uint32_t backup : {0, 1}) {
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    std::deque<Partition> partitions;
    for (uint32_t i = 0; i < kPartitions; ++i)
      partitions.push_back(MakePartition(Options(SYNC, kManyRanks, 0, backup)));
    // The same holds for a rank that has pushed and ended its step.
    for (Partition& partition : partitions) {
      for (uint32_t rank = 0; rank < kManyRanks; ++rank) {
        ASSERT_TRUE(partition.Push(Worker(rank, 0), 0, kRows, MakeGradient({1}, {1, 1})).ok());
      }
      for (uint32_t rank = 0; rank < kManyRanks; ++rank) {
        ASSERT_TRUE(partition.EndStep(Worker(rank, 0), std::nullopt).ok());
      }
      ASSERT_EQ(partition.version(), 1u);
    }
    const size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    // In addition to the ranks: the partition itself, its tables and the row.
    constexpr size_t kRest = size_t{640} << 10;
    EXPECT_LE(bytes / kPartitions, size_t{32} * kManyRanks + kRest) << backup;
  }
}

TEST(PartitionLimits, TenThousandRanksEndTheirStepsIn256Partitions) {
  constexpr uint32_t kPartitions = 256;
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  std::deque<Partition> partitions;
  for (uint32_t i = 0; i < kPartitions; ++i) partitions.emplace_back(i, Options(SYNC, kManyRanks));
  for (uint64_t step = 0; step < 2; ++step) {
    for (uint32_t rank = 0; rank < kManyRanks; ++rank) {
      for (Partition& partition : partitions)
        ASSERT_TRUE(partition.EndStep(Worker(rank, step), 0).ok());
    }
    for (const Partition& partition : partitions) ASSERT_EQ(partition.version(), step + 1);
  }
  const size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd - before;
  // In addition to the ranks: the partition itself.
  EXPECT_LE(bytes, kPartitions * (size_t{32} * kManyRanks + 8192));
}

TEST(PartitionLimits, EndStepTimeIsIndependentOfTheNumberOfRanks) {
  const auto nanoseconds_an_end = [](ConsistencyMode mode, uint32_t backup, uint32_t ranks) {
    Partition partition(0, Options(mode, ranks, 3, backup));
    double best = 1e9;
    for (uint64_t step = 0; step < 5 * kManyRanks / ranks; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      for (uint32_t rank = 0; rank < ranks; ++rank)
        EXPECT_TRUE(partition.EndStep(Worker(rank, step), 0).ok());
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count() / ranks);
    }
    return best;
  };
  for (const auto& [mode, backup] :
       {std::pair(SYNC, 0u), std::pair(SYNC, 2u), std::pair(BOUNDED, 0u)}) {
    const double few = nanoseconds_an_end(mode, backup, kManyRanks / 100);
    const double many = nanoseconds_an_end(mode, backup, kManyRanks);
    // If it looked at every rank, it would take a hundred times as long.
    EXPECT_LT(many, 20 * few) << ConsistencyMode_Name(mode) << ", " << backup << " backup workers";
  }
}
#endif

}  // namespace
}  // namespace pawl
