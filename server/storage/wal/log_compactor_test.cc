#include "server/storage/wal/log_compactor.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/shard/testing/partition_fixture.h"
#include "server/storage/testing/storage_harness.h"

namespace pawl {
namespace {

constexpr size_t kPayloadBytes = 1000;

// A partition, whose changes go to a log with short segments.
class LogCompactorTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteAheadLogOptions options = StorageHarness::QuickOptions();
    options.segment_bytes = 4000;
    storage_ = std::make_unique<StorageHarness>(env_, options);
    ASSERT_TRUE(storage_->Open().ok());
    // The tables.
    for (uint64_t i = 0; i < partition_.log_index(); ++i)
      ASSERT_TRUE(storage_->Append(0, std::string(kPayloadBytes, 'x')));
    std::vector<uint64_t> keys(kRowCount);
    for (uint64_t i = 0; i < kRowCount; ++i) keys[i] = i;
    Push(std::move(keys));
    // A round deletes segments, except for the last one.
    while (storage_->log().figures().segments < 2) Push({7});
  }

  void Push(std::vector<uint64_t> keys) {
    std::vector<float> values(2 * keys.size(), 1);
    ASSERT_TRUE(partition_
                    .Push(Client(1), next_ordinal_++, kRows,
                          MakeGradient(std::move(keys), std::move(values)))
                    .ok());
    ASSERT_TRUE(storage_->Append(0, std::string(kPayloadBytes, 'x')));
    ASSERT_TRUE(storage_->WaitDurable(0));
    ASSERT_EQ(storage_->partition(0).index, partition_.log_index());
  }

  // Everything ever appended.
  uint64_t LogBytes() {
    const WriteAheadLogFigures figures = storage_->log().figures();
    return figures.payload_bytes + figures.records * kRecordHeaderBytes;
  }
  // Logs all changes of a small partition, in the present segment, and starts the next one.
  void AppendSmall(uint32_t partition) {
    for (uint64_t i = 0; i < small_.log_index(); ++i) ASSERT_TRUE(storage_->Append(partition, "x"));
    ASSERT_TRUE(storage_->WaitDurable(partition));
    const uint64_t present = storage_->log().Segments().back().segment;
    while (storage_->log().Segments().back().segment == present) Push({7});
  }
  bool HasSnapshot(uint32_t partition) {
    for (const SnapshotStore::Snapshot& snapshot : storage_->snapshots().List()) {
      if (snapshot.partition == partition) return true;
    }
    return false;
  }

  static constexpr uint64_t kRowCount = 4000;
  FaultEnv env_{1};
  std::unique_ptr<StorageHarness> storage_;
  Partition partition_ = MakePartition(Options(ASYNC, 1));
  Partition small_ = MakePartition(Options(ASYNC, 1));
  uint64_t next_ordinal_ = 0;
};

TEST_F(LogCompactorTest, SnapshotsOfLargePartitionsAreNotLargerThanTheLog) {
  LogCompactor compactor(storage_->log(), storage_->snapshots(), /*log_bytes=*/1, [this](uint32_t) {
    return std::optional<HeldSnapshot>(HoldSnapshot(partition_));
  });
  // The size of a snapshot is known after the first one.
  ASSERT_TRUE(compactor.RunRound().ok());
  ASSERT_EQ(storage_->snapshots().List().size(), 1u);
  const uint64_t before = LogBytes();
  uint64_t snapshot_bytes = 0;
  while (compactor.rounds() < 10) {
    Push({7});
    if (!compactor.IsDue()) continue;
    ASSERT_TRUE(compactor.RunRound().ok());
    snapshot_bytes += *env_.FileSize(storage_->snapshots().List().back().path);
  }
  EXPECT_GT(snapshot_bytes, 9 * kRowCount * 2 * sizeof(float));
  EXPECT_LE(snapshot_bytes, LogBytes() - before);
  EXPECT_LE(storage_->log().figures().segment_bytes, snapshot_bytes / 9 * 2 + 2 * 4000)
      << "the log is bounded too";
}

TEST_F(LogCompactorTest, SkippedPartitionIsCompactedBeforeTheNextRound) {
  bool is_held = true;
  LogCompactor compactor(storage_->log(), storage_->snapshots(), /*log_bytes=*/1 << 30,
                         [&](uint32_t partition) -> std::optional<HeldSnapshot> {
                           if (partition == 1 && !is_held) return std::nullopt;
                           return HoldSnapshot(partition == 0 ? partition_ : small_);
                         });
  ASSERT_NO_FATAL_FAILURE(AppendSmall(1));
  ASSERT_NO_FATAL_FAILURE(AppendSmall(2));
  // The first snapshot of partition 0, and then that of partition 1, which needs a later segment.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(compactor.RunRound().ok());
  ASSERT_TRUE(HasSnapshot(1));
  is_held = false;
  ASSERT_TRUE(compactor.RunRound().ok());
  const auto oldest = [&] { return storage_->log().Segments().front().segment; };
  const uint64_t pinned = oldest();
  ASSERT_TRUE(compactor.EndRound().ok());
  ASSERT_EQ(oldest(), pinned);
  ASSERT_FALSE(HasSnapshot(2));
  is_held = true;
  ASSERT_TRUE(compactor.EndRound().ok());
  EXPECT_GT(oldest(), pinned);
  EXPECT_TRUE(HasSnapshot(2)) << "it needs the next segment";
  EXPECT_EQ(compactor.rounds(), 3u);
}

// Its server is ending.
TEST_F(LogCompactorTest, InterruptedRoundLeavesNothing) {
  // The first call comes before the partition, the second before its first block.
  int calls = 0;
  LogCompactor compactor(
      storage_->log(), storage_->snapshots(), /*log_bytes=*/1,
      [this](uint32_t) { return std::optional<HeldSnapshot>(HoldSnapshot(partition_)); },
      [&] { return ++calls <= 1; });
  EXPECT_TRUE(absl::IsCancelled(compactor.RunRound()));
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
}

TEST_F(LogCompactorTest, PartitionThatHasLeftDoesNotDelayTheNextRound) {
  LogCompactor compactor(storage_->log(), storage_->snapshots(), /*log_bytes=*/1, [this](uint32_t) {
    return std::optional<HeldSnapshot>(HoldSnapshot(partition_));
  });
  ASSERT_NO_FATAL_FAILURE(AppendSmall(1));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(compactor.RunRound().ok());
  ASSERT_TRUE(HasSnapshot(1));
  const uint64_t before = LogBytes();
  ASSERT_TRUE(storage_->Drop(1));
  const uint64_t snapshot_bytes = HoldSnapshot(partition_).approximate_bytes();
  while (LogBytes() - before < snapshot_bytes / 2) Push({7});
  EXPECT_FALSE(compactor.IsDue());
  while (LogBytes() - before < snapshot_bytes * 3 / 2) Push({7});
  EXPECT_TRUE(compactor.IsDue());
}

}  // namespace
}  // namespace pawl
