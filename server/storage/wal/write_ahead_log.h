// The write-ahead log of a server: one for all its partitions, with group commit.
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

// All records of the partition up to `index` are durable; or, if `is_cut`, a cut of its log at
// `index` is.
struct DurableRecord {
  uint32_t partition = 0;
  uint64_t index = 0;
  bool is_cut = false;
};

struct WriteAheadLogOptions {
  std::string data_folder;
  // FSYNC: a record is durable when it is synced. Otherwise (LOG) when it is written: it survives
  // the death of the process, not of the machine.
  bool sync = true;
  uint64_t segment_bytes = 64u << 20;
  // Beyond it HasRoom says no: what may wait to be written, headers included. The memory is that of
  // the requests, which the server admits by bytes of their own; this is what a disk that stands
  // still can hold up.
  uint64_t max_queued_bytes = 256u << 20;
  // What is written (and synced) at once: more waits longer for its acknowledgement and gains
  // nothing.
  uint64_t max_group_bytes = 16u << 20;
  // Between tries to write, on a disk that is full or fails.
  std::chrono::milliseconds retry_interval{500};
  // After so much silence the log's end is marked as settled.
  std::chrono::milliseconds idle_interval{100};
};

// What the log does, for metrics.
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

// Thread-safe. Owns one thread, which writes everything that has been queued as one group, syncs
// it, and tells what is durable.
//
// When writing fails, nothing is reported durable, and the same records are tried again until it
// succeeds: at the same place after a full disk, in a new segment after a failed sync or write.
// status() says what is wrong meanwhile.
class WriteAheadLog {
 public:
  // Called by the log's thread, without locks, in the order of the log: for each partition the
  // highest durable index of a group. May call Append.
  using DurableCallback = std::function<void(absl::Span<const DurableRecord>)>;

  // REQUIRES: `snapshots` outlives it.
  WriteAheadLog(SnapshotStore& snapshots, WriteAheadLogOptions options, RecoveredLog recovered,
                DurableCallback durable);
  // Writes what is queued, unless that fails, and reports it.
  ~WriteAheadLog();

  // Queues a record. `payload` is not copied: `owner` keeps its memory until the record is durable.
  // Never waits and never refuses, so it may be called under a partition's lock, whose order is
  // then the order of the log, and for what has been applied already. REQUIRES: the indices of a
  // partition grow: by one, or, after its snapshot at index - 1 was committed, from any other.
  // After a cut they go on behind its index.
  void Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& payload,
              std::shared_ptr<const void> owner);

  // Whether a record with so many bytes of payload would keep to max_queued_bytes: to be asked
  // before a change is applied, which is refused with RESOURCE_EXHAUSTED otherwise. What other
  // threads append in between counts too.
  bool HasRoom(uint64_t payload_bytes) const;

  // Queues a cut of the partition's log; at index 0 without a snapshot the log is empty. When it is
  // durable, SnapshotStore has applied it, and it is reported with `is_cut`. The next record may
  // follow at once. No snapshot of what comes behind may be committed before the report.
  void AppendCut(uint32_t partition, const LogCut& cut);

  // The partition's records up to `index` are not needed any more (SnapshotWriter::Commit says up
  // to which). `begun` is any position from before that was known to be so: nothing happens if its
  // log was cut since. Segments that nobody needs are deleted, oldest first, in the caller's
  // thread.
  absl::Status Release(uint32_t partition, uint64_t index, LogPosition begun);
  // Deletes the segments that nobody needs since partitions' logs were cut.
  absl::Status DeleteUnneeded();

  // The partitions that need the oldest segment: a snapshot of each of them makes the log shorter.
  // Empty if there is one segment only.
  std::vector<uint32_t> HoldersOfOldestSegment() const;

  // OK, or why nothing becomes durable at the moment.
  absl::Status status() const;
  // The end of what is durable.
  LogPosition DurablePosition() const;
  WriteAheadLogFigures figures() const;
  // The segments on the disk, oldest first, as far as they are settled: so far they can be read.
  std::vector<SegmentUse> Segments() const;
  // Up to which index the partition's log is not needed any more: that may be deleted at any time.
  uint64_t Released(uint32_t partition) const;
  // Begins a new segment soon, also if nothing is appended, so that the present one can be deleted
  // once no partition needs it.
  void EndSegment();

 private:
  void Run();
  // Takes what is queued, up to the limit of a group. False when it is over. An empty group:
  // nothing has come for a while.
  bool TakeGroup(std::vector<QueuedRecord>& group);
  // Writes the group, however often it takes. False if it was given up because the log ends.
  bool Commit(std::vector<QueuedRecord>& group);
  // What a group that is durable changes.
  std::vector<DurableRecord> Settle(const std::vector<QueuedRecord>& group);
  uint64_t CostOf(uint64_t payload_bytes) const {
    return kRecordHeaderBytes + sizeof(QueuedRecord) + payload_bytes;
  }
  void Enqueue(QueuedRecord record) PAWL_REQUIRES(mu_);
  // Brings segments_ up to what the writer has reached.
  void FollowWriter() PAWL_REQUIRES(mu_);

  SnapshotStore& snapshots_;
  Env& env_;
  const WriteAheadLogOptions options_;
  const std::string log_folder_;
  const DurableCallback durable_;

  // Of the log's thread.
  LogWriter writer_;
  bool marked_ = true;
  // How many records the first group must have: those at the end of the recovered log, which the
  // first new segment declares void where they were.
  size_t first_group_records_;

  // Held while segments are deleted, so that they go one after the other.
  Mutex release_mu_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::deque<QueuedRecord> queue_ PAWL_GUARDED_BY(mu_);
  // Of the queue and of the group that is being written.
  uint64_t queued_bytes_ PAWL_GUARDED_BY(mu_) = 0;
  bool segment_ends_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status status_ PAWL_GUARDED_BY(mu_);
  LogPosition position_ PAWL_GUARDED_BY(mu_);
  WriteAheadLogFigures figures_ PAWL_GUARDED_BY(mu_);
  // Of the last record queued of each partition.
  absl::flat_hash_map<uint32_t, uint64_t> last_index_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, uint64_t> released_ PAWL_GUARDED_BY(mu_);
  // Where the last cut of a partition is, packed; of this incarnation of the process.
  absl::flat_hash_map<uint32_t, uint64_t> cut_ PAWL_GUARDED_BY(mu_);
  // Oldest first; the last one is never deleted.
  std::deque<SegmentUse> segments_ PAWL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_WRITE_AHEAD_LOG_H_
