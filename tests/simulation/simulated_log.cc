#include "tests/simulation/simulated_log.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/shard/partition_snapshot.h"

namespace pawl {

SimulatedLog::SimulatedLog(SimulatedDisk& disk, EventLoop& loop, SeededRandom& random, std::shared_ptr<Life> life,
                           bool forgets)
    : disk_(disk), loop_(loop), random_(random), life_(std::move(life)), forgets_(forgets) {
  ++disk_.lives;
  if (disk_.identity.has_value()) disk_.identity->set_life(disk_.lives);
}

SimulatedLog::~SimulatedLog() {
  if (!queue_.empty() && !disk_.full && !disk_.hangs) Write(random_.Below(queue_.size() + 1));
}

absl::StatusOr<std::vector<std::unique_ptr<Partition>>> SimulatedLog::Recover(const PartitionOptions& options) {
  std::vector<std::unique_ptr<Partition>> partitions;
  for (auto& [index, stored] : disk_.partitions) {
    if (forgets_) stored.entries.resize(stored.entries.size() - std::min<size_t>(stored.entries.size(), 3));
    std::unique_ptr<Partition> partition;
    if (stored.snapshot.empty()) {
      partition = std::make_unique<Partition>(index, options);
    } else {
      PAWL_ASSIGN_OR_RETURN(Partition loaded,
                            LoadPartition(index, options, ByteView(stored.snapshot.data(), stored.snapshot.size())));
      partition = std::make_unique<Partition>(std::move(loaded));
    }
    for (const std::string& entry : stored.entries) {
      const auto owner = std::make_shared<const std::string>(entry);
      PAWL_ASSIGN_OR_RETURN(const ChangeView change, DecodeLogEntry(ByteView(owner->data(), owner->size())));
      if (change.index != partition->log_index() + 1) {
        return absl::DataLossError(absl::StrCat("change ", change.index, " follows ", partition->log_index()));
      }
      std::shared_ptr<const TableSchema> table;
      if (change.kind == ChangeView::Kind::kTableCreated) {
        PAWL_ASSIGN_OR_RETURN(table, TableSchema::Create(change.table, options.job_seed));
      }
      PAWL_RETURN_IF_ERROR(ApplyChange(change, owner, std::move(table), *partition));
    }
    last_[index] = partition->log_index();
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

absl::Status SimulatedLog::StartAnew(NodeIdentity identity) {
  disk_.partitions.clear();
  identity.set_life(disk_.lives);
  disk_.identity = std::move(identity);
  last_.clear();
  return absl::OkStatus();
}

absl::Status SimulatedLog::Start(Events events) {
  events_ = std::move(events);
  started_ = true;
  return absl::OkStatus();
}

absl::Status SimulatedLog::CheckRoom(uint64_t) const {
  return disk_.full ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
}

void SimulatedLog::Append(uint32_t partition, uint64_t index, uint64_t, const ByteView& entry, std::shared_ptr<const void>) {
  if (!started_) return;
  uint64_t& last = last_[partition];
  if (index != last + 1) return;
  last = index;
  std::string bytes(entry.size(), '\0');
  entry.CopyTo(bytes.data());
  Enqueue({partition, index, std::move(bytes)});
}

absl::Status SimulatedLog::SaveSnapshot(uint32_t partition, HeldSnapshot snapshot) {
  if (disk_.full || disk_.hangs) return absl::UnavailableError("the disk cannot be written");
  // A slow disk.
  if (random_.Chance(0.05)) return absl::UnavailableError("the end of the replica before is not durable yet");
  if (last_[partition] > 0) Drop(partition);
  Write(queue_.size());
  const uint64_t index = snapshot.log_index();
  std::string bytes;
  while (!snapshot.at_end()) snapshot.Read(1 << 20, bytes);
  if (index > 0) disk_.partitions[partition] = {std::move(bytes), index, {}};
  last_[partition] = index;
  return absl::OkStatus();
}

void SimulatedLog::SaveAgain(uint32_t partition, uint64_t index) {
  Drop(partition);
  if (index == 0) return;
  loop_.Schedule(MonotonicDuration::zero(), life_, "save again", [this, partition] {
    if (last_[partition] > 0) return;
    std::optional<HeldSnapshot> held = events_.hold(partition);
    if (!held.has_value() || held->log_index() == 0) return;
    const uint64_t saved = held->log_index();
    if (!SaveSnapshot(partition, *std::move(held)).ok()) return SaveAgain(partition, saved);
    events_.durable(partition, saved);
  });
}

void SimulatedLog::Drop(uint32_t partition) {
  const auto found = last_.find(partition);
  if (!started_ || found == last_.end() || found->second == 0) return;
  found->second = 0;
  Enqueue({partition, 0, ""});
}

void SimulatedLog::Enqueue(Record record) {
  queue_.push_back(std::move(record));
  ScheduleWrite();
}

void SimulatedLog::ScheduleWrite() {
  if (writing_) return;
  writing_ = true;
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.005) ? 200 : 2);
  loop_.Schedule(random_.Between(std::chrono::microseconds(20), most), life_, "disk", [this] {
    writing_ = false;
    if (disk_.full || disk_.hangs) return ScheduleWrite();
    Write(queue_.size());
  });
}

void SimulatedLog::Write(size_t count) {
  std::map<uint32_t, uint64_t> durable;
  for (; count > 0; --count) {
    Record record = std::move(queue_.front());
    queue_.pop_front();
    if (record.index == 0) {
      disk_.partitions.erase(record.partition);
      durable.erase(record.partition);
      continue;
    }
    SimulatedDisk::StoredPartition& stored = disk_.partitions[record.partition];
    if (stored.snapshot_index + stored.entries.size() + 1 != record.index) std::abort();
    stored.entries.push_back(std::move(record.entry));
    durable[record.partition] = record.index;
  }
  if (!life_->alive) return;
  // Not here: SaveSnapshot is called under a replica's lock. Nothing is told of a replica whose end has come since.
  for (const auto& [partition, index] : durable) {
    loop_.Schedule(MonotonicDuration::zero(), life_, "durable", [this, partition = partition, index = index] {
      if (last_[partition] >= index) events_.durable(partition, index);
    });
  }
}

}  // namespace pawl
