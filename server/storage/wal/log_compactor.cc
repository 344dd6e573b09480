#include "server/storage/wal/log_compactor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client_lib/base/status_macros.h"
#include "server/storage/block_file.h"
#include "server/storage/snapshot/partition_file.h"
#include "server/storage/wal/log_format.h"

namespace pawl {

LogCompactor::LogCompactor(WriteAheadLog& log, SnapshotStore& snapshots, uint64_t log_bytes,
                           Hold hold, std::function<bool()> should_continue)
    : log_(log),
      snapshots_(snapshots),
      log_bytes_(log_bytes),
      hold_(std::move(hold)),
      should_continue_(std::move(should_continue)),
      bytes_at_start_(log.figures().segment_bytes) {}

uint64_t LogCompactor::WrittenBytes() const {
  const WriteAheadLogFigures figures = log_.figures();
  return bytes_at_start_ + figures.payload_bytes + figures.records * kRecordHeaderBytes;
}

bool LogCompactor::IsDue() {
  const uint64_t written = WrittenBytes() - written_at_last_round_;
  if (written <= log_bytes_ / 2) return false;
  // Partitions that have left this server have no snapshots.
  absl::flat_hash_set<uint32_t> present;
  for (const SnapshotStore::Snapshot& snapshot : snapshots_.List())
    present.insert(snapshot.partition);
  absl::erase_if(snapshot_bytes_, [&](const auto& of) { return !present.contains(of.first); });
  uint64_t snapshots = 0;
  for (const auto& [partition, bytes] : snapshot_bytes_) snapshots += bytes;
  return written > snapshots;
}

absl::Status LogCompactor::RunRound() {
  ++rounds_;
  const uint64_t written = WrittenBytes();
  seen_.clear();
  const absl::Status result = ContinueRound();
  if (result.ok()) written_at_last_round_ = written;
  return result;
}

absl::Status LogCompactor::EndRound() {
  if (skipped_.empty()) return absl::OkStatus();
  for (const uint32_t partition : skipped_) seen_.erase(partition);
  return ContinueRound();
}

absl::Status LogCompactor::ContinueRound() {
  skipped_.clear();
  absl::Status result = log_.DeleteUnneeded();
  for (bool more = true; more;) {
    more = false;
    for (const uint32_t partition : log_.PartitionsOfOldestSegment()) {
      if (!should_continue_()) return absl::CancelledError("the round was interrupted");
      if (!seen_.insert(partition).second) continue;
      more = true;
      const absl::StatusOr<bool> held = Compact(partition);
      // The log was reset meanwhile, and the old one needs no snapshot.
      if (absl::IsAborted(held.status())) continue;
      if (!held.ok() || !*held) skipped_.insert(partition);
      if (!held.ok()) result = held.status();
    }
  }
  return result;
}

absl::StatusOr<bool> LogCompactor::Compact(uint32_t partition) {
  // Read before the state is held: a later reset voids the snapshot.
  const LogPosition start_position = log_.DurablePosition();
  std::optional<HeldSnapshot> held = hold_(partition);
  if (!held.has_value()) return false;
  const uint64_t log_index = held->log_index();
  const uint64_t bytes = held->approximate_bytes();
  PAWL_ASSIGN_OR_RETURN(const bool released, ReleaseIdle(partition, log_index, start_position));
  if (released) return true;
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer,
                        snapshots_.Begin(partition, log_index, start_position));
  PAWL_RETURN_IF_ERROR(WritePartition(*std::move(held), *writer, should_continue_));
  PAWL_ASSIGN_OR_RETURN(const uint64_t releasable, writer->Commit());
  snapshot_bytes_[partition] = bytes;
  PAWL_RETURN_IF_ERROR(log_.Release(partition, releasable, start_position));
  return true;
}

absl::StatusOr<bool> LogCompactor::ReleaseIdle(uint32_t partition, uint64_t index,
                                               LogPosition start_position) {
  std::optional<SnapshotStore::Snapshot> newest;
  for (SnapshotStore::Snapshot& snapshot : snapshots_.List()) {
    if (snapshot.partition == partition) newest = std::move(snapshot);
  }
  if (!newest.has_value() || newest->index != index) return false;
  const absl::Status status = snapshots_.Verify(*newest, should_continue_);
  // It is written again.
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) return false;
  PAWL_RETURN_IF_ERROR(status);
  // Its name may not be durable yet.
  PAWL_RETURN_IF_ERROR(snapshots_.ApplyResets());
  PAWL_RETURN_IF_ERROR(log_.Release(partition, index, start_position));
  return true;
}

}  // namespace pawl
