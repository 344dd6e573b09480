// Keeps the log short: writes snapshots of the partitions that need its old segments.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

// A round gives every partition that needs an old segment one more snapshot. It is due whenever the
// log has grown by half of what it may have: the two snapshots that are kept of each partition then
// begin not further back than that.
//
// Not thread-safe, but for one owner's thread of its own: a round takes as long as its snapshots
// take to write.
class LogCompactor {
 public:
  // The partition as it is now; nothing if this server does not hold it (any more). Called without
  // locks.
  using Hold = std::function<std::optional<HeldSnapshot>(uint32_t partition)>;

  // `log_bytes`: what the log may have; or as much as one snapshot of each partition has, if that
  // is more: otherwise more would be written for being brief than for being safe. Both others
  // outlive it.
  LogCompactor(WriteAheadLog& log, SnapshotStore& snapshots, uint64_t log_bytes, Hold hold);

  bool IsDue() const;
  // Goes on where something fails; the error is that of the last failure, and another round is due.
  // So it is if none of the partitions is held (yet).
  absl::Status RunRound();

  // Gives the partition one more snapshot. False if it is not held here.
  absl::StatusOr<bool> Compact(uint32_t partition);

  uint64_t rounds() const { return rounds_; }

 private:
  // All that was ever appended, and what there was at the start.
  uint64_t WrittenBytes() const;
  // Whether the partition's newest snapshot is one of `index`, and whole. Then the log need not
  // hold what it holds, though it is alone: no second one can come while the partition does not
  // change.
  absl::StatusOr<bool> ReleaseIdle(uint32_t partition, uint64_t index, LogPosition begun);

  WriteAheadLog& log_;
  SnapshotStore& snapshots_;
  const uint64_t log_bytes_;
  const Hold hold_;
  const uint64_t bytes_at_start_;
  uint64_t written_at_last_round_ = 0;
  uint64_t rounds_ = 0;
  // Of the last one of each partition.
  absl::flat_hash_map<uint32_t, uint64_t> snapshot_bytes_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_
