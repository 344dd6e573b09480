// The log compactor keeps the log short: it writes snapshots of the partitions that need old
// segments.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/write_ahead_log.h"

namespace pawl {

// A round writes one more snapshot of every partition that needs an old segment. A round is due
// whenever the log has grown by half of its limit, so the two snapshots kept of each partition
// start within that limit. A partition that is not held then, for example because a follower reads
// its log, would pin all later segments: the round ends only when it was compacted. The limit is
// `log_bytes`, or twice the size of one snapshot of each partition here if that is more: so
// compaction never writes more than the log itself.
//
// Not thread-safe; runs on a thread of its owner, since a round takes as long as writing its
// snapshots.
class LogCompactor {
 public:
  // Holds the partition as it is now; nullopt if this server does not have it. Called without
  // locks.
  using Hold = std::function<std::optional<HeldSnapshot>(uint32_t partition)>;

  // `should_continue`: false interrupts a round, which then returns CANCELLED. The references
  // outlive this.
  LogCompactor(
      WriteAheadLog& log, SnapshotStore& snapshots, uint64_t log_bytes, Hold hold,
      std::function<bool()> should_continue = [] { return true; });

  bool IsDue();
  // Starts a round. Continues after a failure; returns the last one, and another round is due.
  absl::Status RunRound();
  // Continues the last round if it skipped partitions that are not held.
  absl::Status EndRound();

  // Writes one more snapshot of the partition. False if it is not held here.
  absl::StatusOr<bool> Compact(uint32_t partition);

  uint64_t rounds() const { return rounds_; }

 private:
  absl::Status ContinueRound();
  // Everything ever appended, and the size of the log at the start.
  uint64_t WrittenBytes() const;
  // Releases the log if the partition's newest snapshot has `index` and is whole. One snapshot
  // suffices then: there can be no second one while the partition does not change.
  absl::StatusOr<bool> ReleaseIdle(uint32_t partition, uint64_t index, LogPosition start_position);

  WriteAheadLog& log_;
  SnapshotStore& snapshots_;
  const uint64_t log_bytes_;
  const Hold hold_;
  const std::function<bool()> should_continue_;
  const uint64_t bytes_at_start_;
  uint64_t written_at_last_round_ = 0;
  uint64_t rounds_ = 0;
  // The partitions that the last round has seen, and those of them that need another try.
  absl::flat_hash_set<uint32_t> seen_;
  absl::flat_hash_set<uint32_t> skipped_;
  // The size of the last snapshot of each partition.
  absl::flat_hash_map<uint32_t, uint64_t> snapshot_bytes_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_COMPACTOR_H_
