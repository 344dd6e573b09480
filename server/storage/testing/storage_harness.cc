#include "server/storage/testing/storage_harness.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr char kDataFolder[] = "/data";
// Makes snapshots larger than a sector, so that they can be torn too.
constexpr size_t kFillerBytes = 1500;

}  // namespace

void ToyPartition::Apply(absl::string_view payload) {
  ++index;
  crc = Crc32c(crc, payload.data(), payload.size());
}

class StorageHarness::Sink final : public RecoverySink {
 public:
  explicit Sink(std::map<uint32_t, ToyPartition>& partitions) : partitions_(partitions) {}

  absl::Status LoadSnapshot(uint32_t partition, uint64_t index,
                            BlockFileReader& snapshot) override {
    std::string bytes;
    while (true) {
      PAWL_ASSIGN_OR_RETURN(const absl::string_view block, snapshot.NextBlock());
      if (block.empty()) break;
      absl::StrAppend(&bytes, block);
    }
    if (bytes.size() != 12 + kFillerBytes)
      return absl::InternalError("the snapshot has a wrong size");
    const char* in = bytes.data();
    ToyPartition& state = partitions_[partition];
    state.index = TakeNumber<uint64_t>(in);
    state.crc = TakeNumber<uint32_t>(in);
    return state.index == index ? absl::OkStatus()
                                : absl::InternalError("the snapshot has a wrong index");
  }

  absl::Status Replay(uint32_t partition, uint64_t index, const ByteView& payload,
                      const std::shared_ptr<const void>& owner) override {
    ToyPartition& state = partitions_[partition];
    if (index != state.index + 1) {
      return absl::InternalError(absl::StrCat("record ", index, " follows ", state.index));
    }
    if (owner == nullptr) return absl::InternalError("no owner");
    std::string bytes(payload.size(), '\0');
    payload.CopyTo(bytes.data());
    state.Apply(bytes);
    return absl::OkStatus();
  }

 private:
  std::map<uint32_t, ToyPartition>& partitions_;
};

WriteAheadLogOptions StorageHarness::QuickOptions() {
  WriteAheadLogOptions options;
  options.data_folder = kDataFolder;
  options.retry_interval = std::chrono::milliseconds(1);
  options.idle_interval = std::chrono::milliseconds(1);
  return options;
}

StorageHarness::StorageHarness(Env& env, WriteAheadLogOptions options)
    : env_(env), options_(std::move(options)) {}

StorageHarness::~StorageHarness() { log_.reset(); }

absl::Status StorageHarness::Open() {
  PAWL_RETURN_IF_ERROR(env_.MakeFolder(kDataFolder));
  PAWL_RETURN_IF_ERROR(env_.SyncFolder("/"));
  PAWL_ASSIGN_OR_RETURN(lock_, env_.LockFolder(kDataFolder));
  snapshots_ = std::make_unique<SnapshotStore>(env_, kDataFolder, kHarnessJobId);
  PAWL_RETURN_IF_ERROR(snapshots_->Open());
  Sink sink(partitions_);
  PAWL_ASSIGN_OR_RETURN(recovered_, Recover(kDataFolder, *snapshots_, sink));
  for (const RecoveredPartition& partition : recovered_.partitions) {
    if (partitions_[partition.partition].index != partition.last_index) {
      return absl::InternalError("the sink and the result of Recover disagree");
    }
  }
  if (partitions_.size() != recovered_.partitions.size()) {
    return absl::InternalError("the sink and the result of Recover disagree");
  }
  {
    MutexLock lock(mu_);
    for (const RecoveredPartition& partition : recovered_.partitions) {
      durable_[partition.partition] = partition.last_index;
    }
    for (auto it = recovered_.unsettled.rbegin(); it != recovered_.unsettled.rend(); ++it) {
      durable_[it->partition] = it->index - 1;
    }
    // A snapshot may be ahead of the rest of the log.
    for (const RecoveredPartition& partition : recovered_.partitions) {
      uint64_t& durable = durable_[partition.partition];
      durable = std::max(durable, partition.snapshot_index);
    }
  }
  log_ = std::make_unique<WriteAheadLog>(
      *snapshots_, options_, recovered_,
      [this](absl::Span<const DurableRecord> durable) { OnDurable(durable); });
  recovered_.unsettled.clear();
  return absl::OkStatus();
}

bool StorageHarness::Append(uint32_t partition, std::string payload) {
  auto owner = std::make_shared<const std::string>(std::move(payload));
  ToyPartition next = partitions_[partition];
  next.Apply(*owner);
  if (!log_->HasRoom(owner->size())) return false;
  log_->Append(partition, next.index, /*term=*/1, ByteView(owner->data(), owner->size()), owner);
  log_->WriteQueued();
  partitions_[partition] = next;
  return true;
}

bool StorageHarness::WaitDurable(uint32_t partition, bool give_up,
                                 std::chrono::milliseconds timeout) {
  const uint64_t index = partitions_.at(partition).index;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    MutexLock lock(mu_);
    if (resets_[partition] == resets_queued_[partition] && durable_[partition] >= index)
      return true;
    if ((give_up && !log_->status().ok()) || std::chrono::steady_clock::now() >= deadline)
      return false;
    changed_.WaitUntil(
        mu_, std::min(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(1)));
  }
}

bool StorageHarness::Drop(uint32_t partition, bool give_up) {
  const uint64_t reset = NoteReset(partition);
  log_->AppendReset(partition, {});
  partitions_.erase(partition);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (true) {
    MutexLock lock(mu_);
    if (resets_[partition] >= reset) return true;
    if ((give_up && !log_->status().ok()) || std::chrono::steady_clock::now() >= deadline)
      return false;
    changed_.WaitUntil(
        mu_, std::min(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(1)));
  }
}

absl::Status StorageHarness::Snapshot(uint32_t partition) {
  const ToyPartition state = partitions_.at(partition);
  const LogPosition start_position = log_->DurablePosition();
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer,
                        snapshots_->Begin(partition, state.index, start_position));
  PAWL_RETURN_IF_ERROR(writer->Append(SnapshotOf(state)));
  PAWL_ASSIGN_OR_RETURN(const uint64_t releasable, writer->Commit());
  {
    MutexLock lock(mu_);
    durable_[partition] = std::max(durable_[partition], state.index);
  }
  return log_->Release(partition, releasable, start_position);
}

std::string StorageHarness::SnapshotOf(const ToyPartition& state) {
  std::string bytes(12 + kFillerBytes, 'x');
  PutNumber(PutNumber(bytes.data(), state.index), state.crc);
  return bytes;
}

uint64_t StorageHarness::NoteReset(uint32_t partition) {
  MutexLock lock(mu_);
  return ++resets_queued_[partition];
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> StorageHarness::Store(uint32_t partition,
                                                                      const ToyPartition& state) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<SnapshotWriter> writer,
                        snapshots_->BeginStored(partition, state.index, log_->DurablePosition()));
  PAWL_RETURN_IF_ERROR(writer->Append(SnapshotOf(state)));
  PAWL_RETURN_IF_ERROR(writer->Store());
  return writer;
}

void StorageHarness::QueueReplace(uint32_t partition, const ToyPartition& state,
                                  SnapshotWriter& stored) {
  NoteReset(partition);
  log_->AppendReset(partition, {state.index, stored.mark()});
  stored.Keep();
  partitions_[partition] = state;
}

absl::Status StorageHarness::Replace(uint32_t partition, const ToyPartition& state) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> stored, Store(partition, state));
  QueueReplace(partition, state, *stored);
  return absl::OkStatus();
}

void StorageHarness::Truncate(uint32_t partition, const ToyPartition& state) {
  NoteReset(partition);
  log_->AppendReset(partition, {state.index, std::nullopt});
  partitions_[partition] = state;
}

uint64_t StorageHarness::durable(uint32_t partition) const {
  MutexLock lock(mu_);
  const auto queued = resets_queued_.find(partition);
  if (queued != resets_queued_.end() &&
      (!resets_.contains(partition) || resets_.at(partition) < queued->second))
    return 0;
  const auto it = durable_.find(partition);
  return it == durable_.end() ? 0 : it->second;
}

void StorageHarness::OnDurable(absl::Span<const DurableRecord> durable) {
  MutexLock lock(mu_);
  for (const DurableRecord& entry : durable) {
    if (entry.is_reset) {
      ++resets_[entry.partition];
      durable_[entry.partition] = entry.index;
      reported_[entry.partition] = entry.index;
    } else {
      if (entry.index <= reported_[entry.partition]) std::abort();  // reported in order
      reported_[entry.partition] = entry.index;
      durable_[entry.partition] = std::max(durable_[entry.partition], entry.index);
    }
  }
  changed_.NotifyAll();
}

}  // namespace pawl
