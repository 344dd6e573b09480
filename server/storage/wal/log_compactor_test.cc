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

// One partition, whose changes go to a log with short segments.
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

  static constexpr uint64_t kRowCount = 4000;
  FaultEnv env_{1};
  std::unique_ptr<StorageHarness> storage_;
  Partition partition_ = MakePartition(Options(ASYNC, 1));
  uint64_t next_ordinal_ = 0;
};

TEST_F(LogCompactorTest, SnapshotsOfLargePartitionsAreNotLargerThanTheLog) {
  LogCompactor compactor(storage_->log(), storage_->snapshots(), /*log_bytes=*/1, [this](uint32_t) {
    return std::optional<HeldSnapshot>(HoldSnapshot(partition_));
  });
  // The size of a snapshot is known after the first one.
  ASSERT_TRUE(compactor.RunRound().ok());
  ASSERT_EQ(storage_->snapshots().List().size(), 1u);
  const auto log_bytes = [&] {
    const WriteAheadLogFigures figures = storage_->log().figures();
    return figures.payload_bytes + figures.records * kRecordHeaderBytes;
  };
  const uint64_t before = log_bytes();
  uint64_t snapshot_bytes = 0;
  while (compactor.rounds() < 10) {
    Push({7});
    if (!compactor.IsDue()) continue;
    ASSERT_TRUE(compactor.RunRound().ok());
    snapshot_bytes += *env_.FileSize(storage_->snapshots().List().back().path);
  }
  EXPECT_GT(snapshot_bytes, 9 * kRowCount * 2 * sizeof(float));
  EXPECT_LE(snapshot_bytes, log_bytes() - before);
  EXPECT_LE(storage_->log().figures().segment_bytes, snapshot_bytes / 9 * 2 + 2 * 4000)
      << "the log is bounded too";
}

}  // namespace
}  // namespace pawl
