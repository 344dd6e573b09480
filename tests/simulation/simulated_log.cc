#include "tests/simulation/simulated_log.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/replication/change.h"
#include "server/replication/log_entry.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

// As in ServerLog.
constexpr std::chrono::seconds kDiskTimeout{30};

struct Stored final : StoredSnapshot {
  uint64_t index = 0;
  std::string bytes;
};

}  // namespace

SimulatedLog::SimulatedLog(SimulatedDisk& disk, EventLoop& loop, SeededRandom& random,
                           std::shared_ptr<Incarnation> incarnation, bool forgets)
    : disk_(disk),
      loop_(loop),
      random_(random),
      incarnation_(std::move(incarnation)),
      forgets_(forgets) {
  ++disk_.starts;
  if (disk_.identity.has_value()) disk_.identity->set_life(disk_.starts);
}

SimulatedLog::~SimulatedLog() {
  if (!queue_.empty() && !disk_.full && !disk_.hangs) Write(random_.Below(queue_.size() + 1));
}

absl::StatusOr<std::vector<std::unique_ptr<Partition>>> SimulatedLog::Recover(
    const PartitionOptions& options) {
  if (disk_.damaged) return absl::DataLossError("the disk is damaged");
  std::vector<std::unique_ptr<Partition>> partitions;
  for (auto& [index, stored] : disk_.partitions) {
    if (forgets_)
      stored.entries.resize(stored.entries.size() - std::min<size_t>(stored.entries.size(), 3));
    stored.terms.resize(stored.entries.size());
    const uint64_t last = stored.snapshot_index + stored.entries.size();
    PAWL_ASSIGN_OR_RETURN(std::unique_ptr<Partition> partition, Load(index, stored, last, options));
    states_[index] = {.last = last, .durable = last};
    partitions.push_back(std::move(partition));
  }
  return partitions;
}

absl::Status SimulatedLog::SetDamagedFilesAside() {
  disk_.partitions.clear();
  disk_.damaged = false;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Partition>> SimulatedLog::Load(
    uint32_t index, const SimulatedDisk::StoredPartition& stored, uint64_t last,
    const PartitionOptions& options) const {
  auto partition = std::make_unique<Partition>(index, options);
  if (!stored.snapshot.empty()) {
    PAWL_ASSIGN_OR_RETURN(
        Partition loaded,
        LoadPartition(index, options, ByteView(stored.snapshot.data(), stored.snapshot.size())));
    partition = std::make_unique<Partition>(std::move(loaded));
  }
  for (size_t i = 0; i < last - stored.snapshot_index; ++i) {
    const auto owner = std::make_shared<const std::string>(stored.entries[i]);
    PAWL_ASSIGN_OR_RETURN(const ChangeView change,
                          DecodeLogEntry(ByteView(owner->data(), owner->size())));
    if (change.index != partition->log_index() + 1) {
      return absl::DataLossError(
          absl::StrCat("change ", change.index, " follows ", partition->log_index()));
    }
    std::shared_ptr<const TableSchema> table;
    if (change.kind == ChangeView::Kind::kTableCreated) {
      PAWL_ASSIGN_OR_RETURN(table, TableSchema::Create(change.table, options.job_seed));
    }
    PAWL_RETURN_IF_ERROR(ApplyChange(change, owner, std::move(table), *partition));
  }
  return partition;
}

absl::Status SimulatedLog::Initialize(NodeIdentity identity) {
  disk_.partitions.clear();
  identity.set_life(disk_.starts);
  disk_.identity = std::move(identity);
  states_.clear();
  return absl::OkStatus();
}

absl::Status SimulatedLog::Start(Owner& owner, const PartitionOptions& options) {
  options_ = options;
  owner_ = &owner;
  started_ = true;
  return absl::OkStatus();
}

absl::Status SimulatedLog::CheckRoom(uint64_t) const {
  return disk_.full ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
}

uint64_t SimulatedLog::DurableIndex(uint32_t partition) const {
  const auto state = states_.find(partition);
  return state == states_.end() || state->second.resets_queued > 0 ? 0 : state->second.durable;
}

absl::Status SimulatedLog::AwaitDurable(uint32_t partition, uint64_t index) const {
  return DurableIndex(partition) >= index
             ? absl::OkStatus()
             : absl::UnavailableError("the disk has not written it yet");
}

void SimulatedLog::Append(uint32_t partition, uint64_t index, uint64_t term, ByteView entry,
                          std::shared_ptr<const void>) {
  if (!started_) return;
  PartitionState& state = states_[partition];
  if (index != state.last + 1) std::abort();
  state.last = index;
  state.read_back.reset();
  std::string bytes(entry.size(), '\0');
  entry.CopyTo(bytes.data());
  Enqueue({Kind::kEntry, partition, index, std::move(bytes), term});
  only_queued_ = true;
}

absl::StatusOr<std::unique_ptr<StoredSnapshot>> SimulatedLog::StoreSnapshot(uint32_t,
                                                                            HeldSnapshot snapshot) {
  if (disk_.full) return absl::ResourceExhaustedError("the disk is full");
  if (disk_.hangs) return absl::UnavailableError("the disk does not answer");
  // A slow disk.
  if (random_.Chance(0.05)) return absl::UnavailableError("another snapshot is being written");
  // A crash discards the snapshot. The disk gets it with the record that activates it.
  auto stored = std::make_unique<Stored>();
  stored->index = snapshot.log_index();
  if (stored->index == 0) return stored;
  while (!snapshot.at_end()) snapshot.Read(1 << 20, stored->bytes);
  return stored;
}

void SimulatedLog::StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) {
  loop_.Schedule(
      random_.Between(std::chrono::microseconds(50), std::chrono::milliseconds(50)), incarnation_,
      "store", [this, partition, snapshot = std::move(snapshot), done = std::move(done)]() mutable {
        done(StoreSnapshot(partition, std::move(snapshot)));
      });
}

void SimulatedLog::Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) {
  auto& stored = static_cast<Stored&>(*snapshot);
  EnqueueReset({Kind::kReplacement, partition, stored.index, std::move(stored.bytes)});
}

absl::StatusOr<std::unique_ptr<Partition>> SimulatedLog::ReadBack(uint32_t partition,
                                                                  uint64_t index) {
  PartitionState& state = states_[partition];
  if (disk_.full || disk_.hangs || state.resets_queued > 0)
    return absl::UnavailableError("the disk is busy");
  // The simulation has no thread that could wait for the queue, so it reads from the queue.
  SimulatedDisk::StoredPartition stored;
  if (const auto found = disk_.partitions.find(partition); found != disk_.partitions.end())
    stored = found->second;
  for (const Record& record : queue_) {
    if (record.partition == partition) stored.entries.push_back(record.bytes);
  }
  // The log may have become shorter because of its own snapshots.
  if (index < stored.snapshot_index || index > state.last || random_.Chance(0.05)) {
    return absl::NotFoundError("the log does not reach back");
  }
  state.read_back = index;
  return Load(partition, stored, index, options_);
}

void SimulatedLog::ReadBackAsync(uint32_t partition, uint64_t index, ReadBackDone done) {
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.2) ? 15000 : 50);
  loop_.Schedule(random_.Between(std::chrono::microseconds(50), most), incarnation_, "read back",
                 [this, partition, index, done = std::move(done)]() mutable {
                   done(ReadBack(partition, index));
                 });
}

absl::Status SimulatedLog::Truncate(uint32_t partition, uint64_t index) {
  if (started_ && states_[partition].read_back != index) std::abort();
  EnqueueReset({Kind::kTruncation, partition, index, ""});
  return absl::OkStatus();
}

void SimulatedLog::ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                               EntriesRead done) {
  ScheduleRead(
      std::make_shared<Read>(Read{partition, first, last, max_bytes, states_[partition].resets,
                                  std::move(done), loop_.elapsed() + kDiskTimeout}));
}

void SimulatedLog::ScheduleRead(std::shared_ptr<Read> read) {
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.05) ? 500 : 5);
  loop_.Schedule(
      random_.Between(std::chrono::microseconds(50), most), incarnation_, "read", [this, read] {
        const PartitionState& state = states_[read->partition];
        if (state.resets != read->resets)
          return read->done(absl::AbortedError("the log was truncated"));
        if (state.last < read->last)
          return read->done(absl::NotFoundError("the log ends before that index"));
        if (state.durable < read->last && loop_.elapsed() >= read->deadline) {
          return read->done(absl::UnavailableError("the entries are not written yet"));
        }
        // Written entries are read from the disk, which takes as long as the disk hangs.
        if (disk_.hangs || state.durable < read->last) return ScheduleRead(read);
        const SimulatedDisk::StoredPartition& stored = disk_.partitions[read->partition];
        if (read->first <= stored.snapshot_index || random_.Chance(0.05)) {
          return read->done(absl::NotFoundError("the log does not reach back"));
        }
        std::vector<StoredEntry> entries;
        size_t bytes = 0;
        for (uint64_t index = read->first; index <= read->last; ++index) {
          const size_t place = index - stored.snapshot_index - 1;
          const auto owner = std::make_shared<const std::string>(stored.entries[place]);
          bytes += owner->size();
          if (!entries.empty() && bytes > read->max_bytes) break;
          entries.push_back(
              {index, stored.terms[place], ByteView(owner->data(), owner->size()), owner});
        }
        read->done(std::move(entries));
      });
}

void SimulatedLog::Drop(uint32_t partition) {
  if (const auto found = states_.find(partition); found == states_.end() || found->second.last == 0)
    return;
  EnqueueReset({Kind::kEnd, partition, 0, ""});
}

void SimulatedLog::EnqueueReset(Record record) {
  if (!started_) return;
  PartitionState& state = states_[record.partition];
  state = {
      .last = record.index, .resets_queued = state.resets_queued + 1, .resets = state.resets + 1};
  Enqueue(std::move(record));
}

void SimulatedLog::Enqueue(Record record) {
  queue_.push_back(std::move(record));
  ScheduleWrite();
}

void SimulatedLog::ScheduleWrite() {
  if (writing_) return;
  writing_ = true;
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.005) ? 200 : 2);
  loop_.Schedule(random_.Between(std::chrono::microseconds(20), most), incarnation_, "disk",
                 [this] {
                   writing_ = false;
                   // The event that appends also calls WriteQueued.
                   if (only_queued_) std::abort();
                   if (disk_.full || disk_.hangs) return ScheduleWrite();
                   Write(queue_.size());
                 });
}

void SimulatedLog::Write(size_t count) {
  std::set<uint32_t> durable;
  for (; count > 0; --count) {
    Record record = std::move(queue_.front());
    queue_.pop_front();
    PartitionState& state = states_[record.partition];
    if (record.kind == Kind::kEntry) {
      SimulatedDisk::StoredPartition& stored = disk_.partitions[record.partition];
      if (stored.snapshot_index + stored.entries.size() + 1 != record.index) std::abort();
      stored.entries.push_back(std::move(record.bytes));
      stored.terms.push_back(record.term);
    } else {
      --state.resets_queued;
      if (record.kind == Kind::kTruncation && record.index > 0) {
        SimulatedDisk::StoredPartition& stored = disk_.partitions.at(record.partition);
        stored.entries.resize(record.index - stored.snapshot_index);
        stored.terms.resize(stored.entries.size());
      } else {
        disk_.partitions.erase(record.partition);
        if (record.index > 0)
          disk_.partitions[record.partition] = {std::move(record.bytes), record.index, {}, {}};
      }
    }
    // Reports nothing about a replica that has been reset since.
    if (state.resets_queued > 0) continue;
    state.durable = record.index;
    durable.insert(record.partition);
  }
  if (!incarnation_->alive) return;
  for (const uint32_t partition : durable) {
    loop_.Schedule(MonotonicDuration::zero(), incarnation_, "durable",
                   [this, partition] { owner_->OnDurable(partition); });
  }
}

}  // namespace pawl
