#include "server/storage/snapshot/snapshot_store.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

class SnapshotStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.MakeFolder("/data").ok());
    ASSERT_TRUE(env_.SyncFolder("/").ok());
    Restart();
  }
  void Restart() {
    store_ = std::make_unique<SnapshotStore>(env_, "/data", 77);
    ASSERT_TRUE(store_->Open().ok());
  }
  absl::StatusOr<uint64_t> Write(uint32_t partition, uint64_t index,
                                 LogPosition position = {1, 100}) {
    std::unique_ptr<SnapshotWriter> writer = store_->Begin(partition, index, position).value();
    EXPECT_TRUE(writer->Append(absl::StrCat("state ", index)).ok());
    return writer->Commit();
  }
  std::vector<uint64_t> Indices(uint32_t partition) const {
    std::vector<uint64_t> indices;
    for (const SnapshotStore::Snapshot& snapshot : store_->List()) {
      if (snapshot.partition == partition) indices.push_back(snapshot.index);
    }
    return indices;
  }

  FaultEnv env_{1};
  std::unique_ptr<SnapshotStore> store_;
};

TEST_F(SnapshotStoreTest, TwoNewestAreKeptAndTheOlderReleasesTheLog) {
  EXPECT_EQ(Write(3, 10).value(), 0u);
  EXPECT_EQ(Write(3, 20).value(), 10u);
  EXPECT_EQ(Write(3, 30).value(), 20u);
  EXPECT_EQ(Write(4, 7).value(), 0u);
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{20, 30}));
  EXPECT_EQ(env_.List("/data/snapshots").value(),
            (std::vector<std::string>{"p000003-00000000000000000020.snap",
                                      "p000003-00000000000000000030.snap",
                                      "p000004-00000000000000000007.snap"}));
}

TEST_F(SnapshotStoreTest, CommittedSnapshotSurvivesPowerLoss) {
  ASSERT_TRUE(Write(3, 10).ok());
  env_.CutPower();
  env_.RestorePower();
  Restart();
  ASSERT_EQ(Indices(3), (std::vector<uint64_t>{10}));
  std::unique_ptr<BlockFileReader> reader = store_->OpenToRead(store_->List()[0]).value();
  EXPECT_EQ(reader->NextBlock().value(), "state 10");
  EXPECT_EQ(reader->NextBlock().value(), "");
}

TEST_F(SnapshotStoreTest, UncommittedSnapshotLeavesNothingBehind) {
  {
    std::unique_ptr<SnapshotWriter> writer = store_->Begin(3, 10, {1, 100}).value();
    ASSERT_TRUE(writer->Append("x").ok());
  }
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
  env_.SetContents("/data/snapshots/p000003-00000000000000000010.snap.1.tmp",
                   "of a process that died");
  Restart();
  EXPECT_TRUE(env_.List("/data/snapshots")->empty())
      << "the next start deletes what a crash has left";
}

TEST_F(SnapshotStoreTest, DropVoidsOlderAndPendingSnapshots) {
  ASSERT_TRUE(Write(3, 10).ok());
  Restart();
  ASSERT_TRUE(Write(3, 20, {1, 200}).ok());
  auto in_progress = store_->Begin(3, 30, {1, 300}).value();
  store_->Reset(3, LogReset(), {1, 300});
  ASSERT_TRUE(store_->ApplyResets().ok());
  EXPECT_TRUE(Indices(3).empty());
  EXPECT_EQ(in_progress->Commit().status().code(), absl::StatusCode::kAborted);
  in_progress.reset();
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
  EXPECT_EQ(Write(3, 5, {1, 336}).value(), 0u) << "the partition has returned";
  store_->Reset(3, LogReset(), {1, 300});
  ASSERT_TRUE(store_->ApplyResets().ok());
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{5}));
}

TEST_F(SnapshotStoreTest, UndurableSnapshotIsWithdrawnUnlessItReplacesOne) {
  env_.FailFolderSyncs(1);
  EXPECT_EQ(Write(3, 10).status().code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
  ASSERT_TRUE(Write(3, 20).ok());
  env_.FailFolderSyncs(1);
  EXPECT_EQ(Write(3, 20).status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{20}));
  env_.CutPower();
  env_.RestorePower();
  Restart();
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{20}));
}

TEST_F(SnapshotStoreTest, WithdrawnSnapshotDoesNotReturnAfterADrop) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultEnv env(seed);
    ASSERT_TRUE(env.MakeFolder("/data").ok());
    ASSERT_TRUE(env.SyncFolder("/").ok());
    SnapshotStore store(env, "/data", 77);
    ASSERT_TRUE(store.Open().ok());
    auto writer = store.Begin(3, 10, {1, 100}).value();
    env.FailFolderSyncs(1);
    EXPECT_FALSE(writer->Commit().ok());
    store.Reset(3, LogReset(), {1, 200});
    ASSERT_TRUE(store.ApplyResets().ok());
    env.CutPower();
    env.RestorePower();
    ASSERT_TRUE(env.List("/data/snapshots")->empty()) << "seed " << seed;
  }
}

TEST_F(SnapshotStoreTest, SnapshotIsCommittedWhenDeletingAnOlderOneFails) {
  ASSERT_TRUE(Write(3, 10).ok());
  ASSERT_TRUE(Write(3, 20).ok());
  env_.FailDeletions(1);
  EXPECT_EQ(Write(3, 30).value(), 10u) << "the log must reach back to the remaining snapshot";
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{10, 20, 30}));
  EXPECT_EQ(Write(3, 40).value(), 30u);
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{30, 40}));
}

TEST_F(SnapshotStoreTest, FailedDeletionOfADropIsRepeated) {
  ASSERT_TRUE(Write(3, 10).ok());
  env_.FailDeletions(1);
  store_->Reset(3, LogReset(), {1, 300});
  EXPECT_FALSE(store_->ApplyResets().ok());
  ASSERT_TRUE(store_->ApplyResets().ok());
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
}

TEST_F(SnapshotStoreTest, StoredSnapshotIsValidOnceAResetNamesIt) {
  ASSERT_TRUE(Write(3, 10).ok());
  auto stored = store_->BeginStored(3, 10, {1, 200}).value();
  EXPECT_EQ(store_->BeginStored(3, 10, {1, 200}).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(stored->Append("another state").ok());
  ASSERT_TRUE(stored->Store().ok());
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{10}));
  EXPECT_EQ(env_.List("/data/snapshots")->size(), 2u);
  stored->Keep();
  ASSERT_TRUE(Write(3, 20, {1, 200}).ok());
  store_->Reset(3, {10, stored->mark()}, {1, 300});
  ASSERT_TRUE(store_->ApplyResets().ok());
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{10}));
  EXPECT_EQ(store_->OpenToRead(store_->List()[0]).value()->NextBlock().value(), "another state");
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(env_.List("/data/snapshots").value(),
            (std::vector<std::string>{"p000003-00000000000000000010.snap"}));
}

TEST_F(SnapshotStoreTest, StoredSnapshotWithoutAResetIsDeleted) {
  auto stored = store_->BeginStored(3, 10, {1, 200}).value();
  ASSERT_TRUE(stored->Store().ok());
  const uint64_t mark = stored->mark();
  env_.KillProcesses();
  stored->Keep();
  stored.reset();
  Restart();
  EXPECT_TRUE(Indices(3).empty());
  ASSERT_EQ(store_->ListAll().size(), 1u);
  EXPECT_EQ(store_->ListAll()[0].stored_mark, mark);
  stored = store_->BeginStored(3, 10, {1, 200}).value();
  ASSERT_TRUE(stored->Store().ok());
  stored.reset();
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
}

TEST_F(SnapshotStoreTest, TruncationVoidsLaterSnapshots) {
  ASSERT_TRUE(Write(3, 10).ok());
  ASSERT_TRUE(Write(3, 20).ok());
  auto in_progress = store_->Begin(3, 15, {1, 300}).value();
  store_->Reset(3, {15, std::nullopt}, {1, 300});
  ASSERT_TRUE(store_->ApplyResets().ok());
  EXPECT_EQ(Indices(3), (std::vector<uint64_t>{10}));
  EXPECT_EQ(in_progress->Commit().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Write(3, 16, {1, 336}).value(), 10u);
}

TEST_F(SnapshotStoreTest, FullDiskIsReportedAndCleanedUp) {
  env_.SetCapacity(env_.UsedBytes() + 60);
  {
    std::unique_ptr<SnapshotWriter> writer = store_->Begin(3, 10, {1, 100}).value();
    ASSERT_TRUE(writer->Append(std::string(100, 'x')).ok());
    EXPECT_EQ(writer->Commit().status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(env_.UsedBytes(), 0u);
}

}  // namespace
}  // namespace pawl
