// The data plane's side of checkpoints: cutting partitions, and replacing them by restored ones.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane/data_plane.h"
#include "server/storage/snapshot/partition_file.h"

namespace pawl {

absl::StatusOr<std::vector<uint32_t>> DataPlane::SetCut(
    uint64_t epoch, const std::shared_ptr<const Cut>& cut,
    absl::FunctionRef<bool(uint32_t partition)> has) {
  PAWL_ASSIGN_OR_RETURN(const auto view, ViewAt(epoch));
  std::vector<uint32_t> partitions;
  absl::Status status;
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) continue;
    partitions.push_back(replica->index);
    if (replica->cut == cut || has(replica->index)) continue;
    // A step's pushes are in some partitions only, so the exact moment must not be missed.
    if (const uint64_t step = replica->partition->CutStep(); step >= cut->step) {
      status.Update(absl::OutOfRangeError(absl::StrCat("partition ", replica->index, ", at step ",
                                                       step, ", is past the cut: step ", cut->step,
                                                       " is too early for a checkpoint")));
      continue;
    }
    replica->cut = cut;
  }
  if (status.ok()) return partitions;
  DropCut(cut);
  return status;
}

void DataPlane::DropCut(const std::shared_ptr<const Cut>& cut) {
  const auto view = replica_map_.view();
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (replica->cut == cut) replica->cut = nullptr;
  }
}

absl::Status DataPlane::CheckIsAt(Replica& replica, uint64_t step) {
  // In the other modes the step is the lowest clock that still counts. Partitions may differ in it
  // at the end, because ranks are released and return at slightly different times in each.
  if (replica.partition->options().consistency.mode() != SYNC ||
      replica.partition->CutStep() == step)
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("partition ", replica.index, " is at step ",
                                                    replica.partition->CutStep(),
                                                    ", but the job ended at step ", step));
}

absl::StatusOr<std::vector<uint32_t>> DataPlane::PrimariesAt(uint64_t epoch, uint64_t step) const {
  PAWL_ASSIGN_OR_RETURN(const auto view, ViewAt(epoch));
  std::vector<uint32_t> partitions;
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) continue;
    PAWL_RETURN_IF_ERROR(CheckIsAt(*replica, step));
    partitions.push_back(replica->index);
  }
  return partitions;
}

absl::StatusOr<TakenCut> DataPlane::TakeCutNow(uint32_t partition, uint64_t step) const {
  const auto view = replica_map_.view();
  const std::shared_ptr<Replica> replica =
      view->Find(partition) == nullptr ? nullptr : view->replicas[partition];
  if (replica != nullptr) {
    MutexLock lock(replica->mu);
    if (replica->HasDataAsPrimary()) {
      PAWL_RETURN_IF_ERROR(CheckIsAt(*replica, step));
      return TakenCut{MarkOf(replica), HoldSnapshot(*replica->partition)};
    }
  }
  return absl::AbortedError(absl::StrCat("partition ", partition, " has moved"));
}

void DataPlane::AwaitCommit(const std::vector<ChangeMark>& changes, Done done) {
  CallContext context;
  context.deadline = clock_.Now() + options_.control_deadline;
  waiting_.ForCommit(changes, std::move(context),
                     [done = std::move(done)](absl::Status status) mutable {
                       // The caller is no client that could use the new routing.
                       if (absl::IsFailedPrecondition(status))
                         status = absl::AbortedError(status.message());
                       done(std::move(status));
                     });
}

absl::StatusOr<std::vector<RecoveredReplica>> DataPlane::Primaries(uint64_t epoch) const {
  PAWL_ASSIGN_OR_RETURN(const auto view, ViewAt(epoch));
  std::vector<RecoveredReplica> primaries;
  for (const auto& replica : view->replicas) {
    if (replica == nullptr) continue;
    MutexLock lock(replica->mu);
    if (!replica->HasDataAsPrimary()) continue;
    RecoveredReplica& entry = primaries.emplace_back();
    entry.set_partition(replica->index);
    entry.set_log_index(replica->partition->log_index());
  }
  return primaries;
}

absl::StatusOr<std::unique_ptr<Partition>> DataPlane::LoadSaved(
    BlockFileReader& file, uint32_t partition, absl::FunctionRef<bool()> should_continue) const {
  PAWL_ASSIGN_OR_RETURN(
      Partition loaded,
      LoadPartitionFile(file, PartitionLoader(partition, replica_map_.view()->options),
                        should_continue));
  PAWL_RETURN_IF_ERROR(loaded.ReopenStep());
  loaded.ForgetTerms();
  return std::make_unique<Partition>(std::move(loaded));
}

absl::Status DataPlane::Install(std::unique_ptr<Partition> partition) {
  for (const auto& table : partition->tables())
    PAWL_RETURN_IF_ERROR(replica_map_.LearnTable(table->spec()).status());
  const auto view = replica_map_.view();
  const uint32_t index = partition->index();
  PAWL_ASSIGN_OR_RETURN(const auto replica, Find(*view, index));
  const auto check = [&]() PAWL_REQUIRES(replica->mu) -> absl::Status {
    if (!replica->HasDataAsPrimary())
      return absl::UnavailableError(absl::StrCat("partition ", index, " has moved"));
    if (replica->partition->log_index() == 0 && replica->followers.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "partition ", index, " was changed before it was restored: it is at log index ",
        replica->partition->log_index()));
  };
  const uint64_t log_index = partition->log_index();
  std::unique_ptr<StoredSnapshot> stored;
  // Done without the lock, because it takes long.
  if (log_ != nullptr) {
    PAWL_ASSIGN_OR_RETURN(stored, log_->StoreSnapshot(index, HoldSnapshot(*partition)));
  }
  {
    MutexLock lock(replica->mu);
    PAWL_RETURN_IF_ERROR(check());
    replica->partition = std::move(partition);
    tail_.Forget(index);
    if (log_ == nullptr) return absl::OkStatus();
    log_->Replace(index, std::move(stored));
    replica->durable_index = log_->DurableIndex(index);
  }
  return log_->AwaitDurable(index, log_index);
}

absl::Status DataPlane::AwaitDurable(uint32_t partition, uint64_t log_index) const {
  return log_ == nullptr ? absl::OkStatus() : log_->AwaitDurable(partition, log_index);
}

}  // namespace pawl
