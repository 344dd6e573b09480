#include "tests/simulation/simulated_log.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

class SimulatedLogTest : public testing::Test, private DurableLog::Owner {
 protected:
  bool OnDurable(uint32_t partition) override {
    if (const uint64_t index = log_->DurableIndex(partition)) durable_[partition] = index;
    return true;
  }
  std::optional<HeldSnapshot> Hold(uint32_t) override { return std::nullopt; }

  SimulatedLogTest() {
    options_.partitions = 4;
    options_.logical_workers = 1;
    options_.consistency.set_mode(ASYNC);
    Open();
    EXPECT_FALSE(log_->identity().has_value());
    NodeIdentity identity;
    identity.set_node("server-0");
    EXPECT_TRUE(log_->Initialize(identity).ok());
    Start();
  }

  void Open() {
    incarnation_ = std::make_shared<Incarnation>("server", 1);
    log_ = std::make_unique<SimulatedLog>(disk_, loop_, random_, incarnation_);
  }
  void Start() { ASSERT_TRUE(log_->Start(*this, options_).ok()); }
  // A takeover by a rank: a change that needs no table.
  void Change(uint32_t partition) {
    ChangeView change;
    change.kind = ChangeView::Kind::kTakeOver;
    change.index = ++index_[partition];
    change.term = term_;
    change.partition = partition;
    change.sender = {Sender::Kind::kLogicalWorker, 0, change.index};
    const OutgoingMessage entry = EncodeLogEntry(change, nullptr);
    log_->Append(partition, change.index, change.term, entry.bytes, entry.owner);
    log_->WriteQueued();
  }
  void Replace(const Partition& partition) {
    auto stored = log_->StoreSnapshot(partition.index(), HoldSnapshot(partition));
    while (!stored.ok()) stored = log_->StoreSnapshot(partition.index(), HoldSnapshot(partition));
    log_->Replace(partition.index(), *std::move(stored));
    index_[partition.index()] = partition.log_index();
  }
  void Settle() {
    while (loop_.Step()) {
    }
  }
  void Kill() {
    incarnation_->alive = false;
    log_.reset();
  }
  // The log index by partition.
  std::map<uint32_t, uint64_t> Recovered() {
    std::map<uint32_t, uint64_t> recovered;
    const auto partitions = log_->Recover(options_);
    EXPECT_TRUE(partitions.ok()) << partitions.status();
    for (const auto& partition : *partitions)
      recovered[partition->index()] = partition->log_index();
    return recovered;
  }

  PartitionOptions options_;
  EventLoop loop_;
  SeededRandom random_{1};
  SimulatedDisk disk_;
  std::shared_ptr<Incarnation> incarnation_;
  std::unique_ptr<SimulatedLog> log_;
  std::map<uint32_t, uint64_t> index_;
  uint64_t term_ = 1;
  std::map<uint32_t, uint64_t> durable_;
};

TEST_F(SimulatedLogTest, DurableChangesSurviveARestart) {
  for (int i = 0; i < 3; ++i) Change(1);
  Change(2);
  EXPECT_TRUE(durable_.empty());
  Settle();
  EXPECT_EQ(durable_, (std::map<uint32_t, uint64_t>{{1, 3}, {2, 1}}));
  Kill();
  Open();
  EXPECT_EQ(log_->identity()->node(), "server-0");
  EXPECT_EQ(Recovered(), (std::map<uint32_t, uint64_t>{{1, 3}, {2, 1}}));
  Start();
  Change(1);
  Settle();
  EXPECT_EQ(durable_[1], 4u);
}

TEST_F(SimulatedLogTest, DeathKeepsAPrefixOfTheQueue) {
  std::set<uint64_t> kept;
  for (int incarnation = 0; incarnation < 50; ++incarnation) {
    ASSERT_TRUE(log_->Initialize(NodeIdentity()).ok());
    index_.clear();
    for (int i = 0; i < 4; ++i) Change(0);
    durable_.clear();
    Kill();
    Settle();
    EXPECT_TRUE(durable_.empty()) << "a dead process got a report";
    Open();
    const auto recovered = Recovered();
    kept.insert(recovered.empty() ? 0 : recovered.at(0));
    Start();
  }
  EXPECT_EQ(kept, (std::set<uint64_t>{0, 1, 2, 3, 4}));
}

TEST_F(SimulatedLogTest, SnapshotRestoresADroppedPartition) {
  Change(1);
  Settle();
  log_->Drop(1);
  Settle();
  EXPECT_TRUE(disk_.partitions.empty());

  Partition partition(1, options_);
  for (uint64_t incarnation = 1; incarnation <= 7; ++incarnation)
    ASSERT_TRUE(partition.TakeOver(0, incarnation).ok());
  Replace(partition);
  Change(1);
  Settle();
  EXPECT_EQ(durable_[1], 8u);
  Kill();
  Open();
  EXPECT_EQ(Recovered(), (std::map<uint32_t, uint64_t>{{1, 8}}));
}

TEST_F(SimulatedLogTest, ReplacementIsAtomic) {
  std::set<uint64_t> kept;
  for (int incarnation = 0; incarnation < 50; ++incarnation) {
    ASSERT_TRUE(log_->Initialize(NodeIdentity()).ok());
    index_.clear();
    Change(1);
    Settle();
    Partition partition(1, options_);
    for (uint64_t incarnation = 1; incarnation <= 7; ++incarnation)
      ASSERT_TRUE(partition.TakeOver(0, incarnation).ok());
    Replace(partition);
    EXPECT_EQ(log_->DurableIndex(1), 0u);
    Change(1);
    Kill();
    Open();
    kept.insert(Recovered().at(1));
    Start();
  }
  EXPECT_EQ(kept, (std::set<uint64_t>{1, 7, 8}));
}

TEST_F(SimulatedLogTest, TruncatedLogContinues) {
  for (int i = 0; i < 6; ++i) Change(1);
  auto back = log_->ReadBack(1, 4);
  while (!back.ok()) back = log_->ReadBack(1, 4);
  EXPECT_EQ((*back)->log_index(), 4u);
  ASSERT_TRUE(log_->Truncate(1, 4).ok());
  EXPECT_EQ(log_->DurableIndex(1), 0u);
  index_[1] = 4;
  term_ = 2;
  for (int i = 0; i < 3; ++i) Change(1);
  std::vector<std::pair<uint64_t, uint64_t>> read;
  while (read.empty()) {
    log_->ReadEntries(1, 3, 7, 1 << 20, [&](absl::StatusOr<std::vector<StoredEntry>> entries) {
      if (!entries.ok()) return;
      for (const StoredEntry& entry : *entries) read.emplace_back(entry.index, entry.term);
    });
    Settle();
  }
  EXPECT_EQ(read,
            (std::vector<std::pair<uint64_t, uint64_t>>{{3, 1}, {4, 1}, {5, 2}, {6, 2}, {7, 2}}));
  EXPECT_EQ(durable_[1], 7u);
  Kill();
  Open();
  EXPECT_EQ(Recovered().at(1), 7u);
}

TEST_F(SimulatedLogTest, DroppedReplicaIsNotReported) {
  Change(1);
  while (!disk_.partitions.contains(1)) ASSERT_TRUE(loop_.Step());
  log_->Drop(1);
  Settle();
  EXPECT_TRUE(durable_.empty());
}

}  // namespace
}  // namespace pawl
