// The write-ahead log of a server, with group commit: one log for all its partitions.
#ifndef PAWL_SERVER_STORAGE_WAL_WRITE_AHEAD_LOG_H_
#define PAWL_SERVER_STORAGE_WAL_WRITE_AHEAD_LOG_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/mutex.h"
#include "server/storage/recovery.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/wal/log_writer.h"

namespace pawl {

// All records of the partition up to `index` are durable; or, if `is_reset`, a reset of its log to
// `index` is.
struct DurableRecord {
  uint32_t partition = 0;
  uint64_t index = 0;
  bool is_reset = false;
};

struct WriteAheadLogOptions {
  std::string data_folder;
  // FSYNC: a record is durable when it is synced. Otherwise (LOG) when it is written: it survives
  // the death of the process, not of the machine.
  bool sync = true;
  uint64_t segment_bytes = 64u << 20;
  // The most bytes that may be queued, headers included; beyond that HasRoom returns false. The
  // memory belongs to requests, which the server admits by their own limits; this bounds the
  // backlog of a stalled disk.
  uint64_t max_queued_bytes = 256u << 20;
  // The most bytes that are written (and synced) at once: more only delays the acknowledgement.
  uint64_t max_group_bytes = 16u << 20;
  // The pause between tries to write to a disk that is full or fails.
  std::chrono::milliseconds retry_interval{500};
  // The log's end is marked as settled after this long without a record.
  std::chrono::milliseconds idle_interval{100};
};

// Counters for metrics.
struct WriteAheadLogFigures {
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t groups = 0;
  uint64_t failures = 0;
  uint64_t queued_bytes = 0;
  // On the disk.
  uint64_t segments = 0;
  uint64_t segment_bytes = 0;
};

// Thread-safe. Owns one thread, which writes what WriteQueued has released as one group, syncs it,
// and reports what is durable.
//
// When a write fails, nothing is reported durable, and the same records are retried until they
// succeed: at the same place after a full disk, in a new segment after a failed sync or write.
// Meanwhile status() has the error.
class WriteAheadLog {
 public:
  // Called by the log's thread, without locks, in log order: for each partition the highest durable
  // index of a group. May call Append.
  using DurableCallback = std::function<void(absl::Span<const DurableRecord>)>;

  // REQUIRES: `snapshots` outlives this.
  WriteAheadLog(SnapshotStore& snapshots, WriteAheadLogOptions options, RecoveredLog recovered,
                DurableCallback durable);
  // Writes what is queued, unless that fails, and reports it.
  ~WriteAheadLog();

  // Queues a record. `payload` is not copied: `owner` keeps its memory until the record is durable.
  // Never waits and never refuses, so it may be called under a partition's lock, whose order
  // becomes the order of the log, and for changes that are already applied. REQUIRES: a partition's
  // indices grow by one, or start anywhere after its snapshot at index - 1 was committed. After a
  // reset they continue from its index.
  void Append(uint32_t partition, uint64_t index, uint64_t term, ByteView payload,
              std::shared_ptr<const void> owner);

  // Starts to write the queued records, as one group if they fit. Until then they stay queued, so
  // that the log's thread does not wake for each record of a message.
  void WriteQueued();

  // Whether a record with that many payload bytes stays within max_queued_bytes. Call it before a
  // change is applied; otherwise the change is refused with RESOURCE_EXHAUSTED. What other threads
  // append in between counts too.
  bool HasRoom(uint64_t payload_bytes) const;

  // Queues a reset of the partition's log and starts to write; a reset to index 0 without a
  // snapshot empties it. Once it is durable, SnapshotStore has applied it, and it is reported with
  // `is_reset`. The next record may follow at once. No snapshot of a later state may be committed
  // before the report.
  void AppendReset(uint32_t partition, const LogReset& reset);

  // The partition's records up to `index` are no longer needed (SnapshotWriter::Commit returns that
  // index). `start_position` is any position before that was known: if the log was reset since,
  // nothing happens. Deletes segments that no partition needs, oldest first, on the calling thread.
  absl::Status Release(uint32_t partition, uint64_t index, LogPosition start_position);
  // Deletes the segments that no partition needs since logs were reset.
  absl::Status DeleteUnneeded();

  // The partitions that need the oldest segment: a snapshot of each of them makes the log shorter.
  // Empty if there is only one segment.
  std::vector<uint32_t> PartitionsOfOldestSegment() const;

  // OK, or the reason why nothing becomes durable at present.
  absl::Status status() const;
  // The end of the durable part.
  LogPosition DurablePosition() const;
  WriteAheadLogFigures figures() const;
  // The readable segments on the disk, oldest first, up to their settled end.
  std::vector<SegmentUse> Segments() const;
  // The index up to which the partition's log is no longer needed and may be deleted at any time.
  uint64_t Released(uint32_t partition) const;
  // Starts a new segment soon, even if nothing is appended, so that the present one can be deleted
  // once no partition needs it.
  void EndSegment();

 private:
  void Run();
  // Takes what is queued, up to the limit of a group. False: the log is stopping. An empty group:
  // nothing was queued for a while.
  bool TakeGroup(std::vector<QueuedRecord>& group);
  // Writes the group, retrying until it succeeds. False if it was abandoned because the log is
  // stopping.
  bool Commit(std::vector<QueuedRecord>& group);
  // Applies the effects of a durable group.
  std::vector<DurableRecord> Settle(const std::vector<QueuedRecord>& group);
  uint64_t CostOf(uint64_t payload_bytes) const {
    return kRecordHeaderBytes + sizeof(QueuedRecord) + payload_bytes;
  }
  void Enqueue(QueuedRecord record) PAWL_REQUIRES(mu_);
  // Updates segments_ to what the writer has reached.
  void FollowWriter() PAWL_REQUIRES(mu_);

  SnapshotStore& snapshots_;
  Env& env_;
  const WriteAheadLogOptions options_;
  const std::string log_folder_;
  const DurableCallback durable_;

  // Used by the log's thread only.
  LogWriter writer_;
  bool marked_ = true;
  // The least number of records in the first group: the records at the end of the recovered log,
  // which the first new segment declares void at their old place.
  size_t first_group_records_;

  // Held while segments are deleted, so that they go one after the other.
  Mutex release_mu_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::deque<QueuedRecord> queue_ PAWL_GUARDED_BY(mu_);
  // How many records at the front of the queue WriteQueued has released.
  size_t to_write_ PAWL_GUARDED_BY(mu_) = 0;
  // Includes the group that is being written.
  uint64_t queued_bytes_ PAWL_GUARDED_BY(mu_) = 0;
  bool segment_ends_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  LogPosition position_ PAWL_GUARDED_BY(mu_);
  WriteAheadLogFigures figures_ PAWL_GUARDED_BY(mu_);
  // The last record queued of each partition.
  absl::flat_hash_map<uint32_t, uint64_t> last_index_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, uint64_t> released_ PAWL_GUARDED_BY(mu_);
  // The packed position of a partition's last reset by this process.
  absl::flat_hash_map<uint32_t, uint64_t> last_reset_ PAWL_GUARDED_BY(mu_);
  // Oldest first; the last one is never deleted.
  std::deque<SegmentUse> segments_ PAWL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_WRITE_AHEAD_LOG_H_
