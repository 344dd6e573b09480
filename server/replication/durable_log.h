// Durable storage of a server's replicas: the log of their changes, and the server's identity.
#ifndef PAWL_SERVER_REPLICATION_DURABLE_LOG_H_
#define PAWL_SERVER_REPLICATION_DURABLE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "client_lib/daemon/node_identity.pb.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {

// A snapshot file that is written but not yet part of the log. The file is deleted when this is
// destroyed, unless it was passed to DurableLog::Replace.
class StoredSnapshot {
 public:
  virtual ~StoredSnapshot() = default;
};

// A change read from the log.
struct StoredEntry {
  uint64_t index = 0;
  uint64_t term = 0;
  // A serialized LogEntry; `owner` keeps its memory alive.
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

// Implementations: ServerLog, in a data directory, and the simulation's SimulatedLog, in memory.
//
// One thread opens the log: Recover or Initialize, then Start, and at the end Stop. All other
// functions are thread-safe. The log's locks are acquired after a replica's.
//
// The log of a partition is one run of entries that starts with the first change or after a
// snapshot. Append, Replace, Truncate and Drop only queue, in call order, and the caller holds the
// replica's lock: so the log always matches the replica as it was at some moment, even after a
// crash.
class DurableLog {
 public:
  // The server whose replicas are logged; called without locks.
  class Owner {
   public:
    // DurableIndex of the partition has risen. Does not wait for a lock: returns false if the
    // partition is busy, and is then called again.
    virtual bool OnDurable(uint32_t partition) = 0;
    // HoldSnapshot of the replica, taken under its lock; nullopt if this server does not host the
    // replica or it has no data yet.
    virtual std::optional<HeldSnapshot> Hold(uint32_t partition) = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~DurableLog() = default;

  // The identity of the node whose data this is; nullopt for a new log. Its `life` is the start
  // count of the present process.
  virtual const std::optional<NodeIdentity>& identity() const = 0;
  // The partitions that the previous process left, ascending; empty if it wrote no log. `options`
  // are those of the identity's job. DATA_LOSS names the file and the offset; nothing was changed,
  // and SetDamagedFilesAside can follow. INVALID_ARGUMENT, with advice: an operator must act first.
  // REQUIRES: identity().
  virtual absl::StatusOr<std::vector<std::unique_ptr<Partition>>> Recover(
      const PartitionOptions& options) = 0;
  // Moves the files out of the way, without deleting them, so that the log is empty and Start can
  // follow. The caller decides whether the job can do without the data. After an error or a crash
  // Recover returns DATA_LOSS, and another call continues. REQUIRES: Recover has returned
  // DATA_LOSS.
  virtual absl::Status SetDamagedFilesAside() = 0;
  // Records that the job has ended, so that another job's server may delete the data. Call it once
  // this server has stopped writing.
  virtual absl::Status MarkJobEnded() = 0;
  // Deletes the data of any earlier job or node and records the new identity. The caller decides
  // whether the data may go: see HoldsUnfinishedJob.
  virtual absl::Status Initialize(NodeIdentity identity) = 0;
  // Starts to write; returns when everything that was recovered is durable. `owner` is used until
  // Stop. ReadBack uses `options`, which are the job's. RESOURCE_EXHAUSTED and other errors: the
  // disk refuses writes. REQUIRES: Recover, SetDamagedFilesAside or Initialize has succeeded, and
  // the job writes a log.
  virtual absl::Status Start(Owner& owner, const PartitionOptions& options) = 0;
  // Writes the queued entries, if possible. Afterwards the owner is not called and nothing is
  // accepted.
  virtual void Stop() = 0;

  // OK if changes of that many bytes can be accepted now; call it before a change is applied.
  // RESOURCE_EXHAUSTED, with the reason, while the disk is full or fails or the queue is full.
  virtual absl::Status CheckRoom(uint64_t bytes) const = 0;
  // OK, or why nothing is written at present. A full queue alone is no reason.
  virtual absl::Status WriteStatus() const { return CheckRoom(0); }

  // The last durable entry of the partition's log; 0 while a Replace or Truncate is not durable.
  // REQUIRES: the replica's lock, so that the log is the present replica's.
  virtual uint64_t DurableIndex(uint32_t partition) const = 0;
  // Blocks until the log is durable up to `index`. The caller holds no lock. UNAVAILABLE: it takes
  // too long.
  virtual absl::Status AwaitDurable(uint32_t partition, uint64_t index) const = 0;

  // Queues a serialized LogEntry with that index and term; does not wait for the disk. The caller
  // calls WriteQueued soon, without locks, so that a message's entries are written together.
  // REQUIRES: `index` follows the last one.
  virtual void Append(uint32_t partition, uint64_t index, uint64_t term, ByteView entry,
                      std::shared_ptr<const void> owner) = 0;

  // Starts to write what is queued. Does not wait for the disk.
  virtual void WriteQueued() = 0;

  // Writes a snapshot to a file that a crash discards. Takes time in proportion to the snapshot:
  // call it without the replica's lock. Returns the disk's errors. UNAVAILABLE: a snapshot of the
  // same index is still being stored; retry.
  virtual absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                        HeldSnapshot snapshot) = 0;
  // StoreSnapshot, whose result `done` receives once, without locks, mostly on a thread of the log.
  // ServerLog does not block the caller. UNAVAILABLE also if the log stops meanwhile.
  using StoreDone = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<StoredSnapshot>>)>;
  virtual void StoreSnapshotAsync(uint32_t partition, HeldSnapshot snapshot, StoreDone done) {
    done(StoreSnapshot(partition, std::move(snapshot)));
  }
  // Resets the partition's log to that snapshot. Until the reset is durable, recovery uses the
  // snapshot and entries before it. The durable reset is reported like an entry with the snapshot's
  // index.
  virtual void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) = 0;

  // Returns the replica as it was after change `index`, from the partition's snapshots and entries.
  // Changes nothing and takes as long as recovering the partition. Call it without the replica's
  // lock, while no change of the replica can arrive. NOT_FOUND: the log does not reach back that
  // far. UNAVAILABLE: writing the queued entries takes too long, or Stop was called.
  virtual absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition,
                                                              uint64_t index) = 0;
  // ReadBack, whose result `done` receives as that of StoreSnapshotAsync.
  using ReadBackDone = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Partition>>)>;
  virtual void ReadBackAsync(uint32_t partition, uint64_t index, ReadBackDone done) {
    done(ReadBack(partition, index));
  }
  // Truncates the partition's log after `index`. Its durability is reported like that of an entry
  // of that index. After an error nothing has changed, and the replica must stay as it is; it can
  // get a snapshot instead. ABORTED: ReadBack succeeded too long ago, and the files it read may be
  // deleted. UNAVAILABLE: the log has stopped. REQUIRES: since ReadBack(partition, index)
  // succeeded, the partition's log was neither appended to nor reset.
  [[nodiscard]] virtual absl::Status Truncate(uint32_t partition, uint64_t index) = 0;
  // No Truncate follows a ReadBack that succeeded: what it needs can be deleted.
  virtual void ForgetReadBack(uint32_t partition) {}

  // Reads the entries `first` to `last` on a thread of the log and passes them to `done` there,
  // without locks: all of them, in order, or, if they exceed `max_bytes`, the first ones, at least
  // one. `done` is called exactly once. NOT_FOUND: the log no longer reaches back to `first`.
  // ABORTED: the log was reset or has stopped; if it had stopped before the call, `done` runs on
  // the caller's thread, which must hold no lock. UNAVAILABLE: queued entries are still not
  // written, because the disk is full or does not answer.
  using EntriesRead = absl::AnyInvocable<void(absl::StatusOr<std::vector<StoredEntry>>)>;
  virtual void ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                           EntriesRead done) = 0;

  // Empties the partition's log: the partition is no longer hosted here, or starts again with
  // change 1. Does not wait for the disk.
  virtual void Drop(uint32_t partition) = 0;

  // Results of the background check of the files on disk, since the process started. Thread-safe.
  struct ScrubFigures {
    uint64_t damaged = 0;   // files found damaged
    uint64_t repaired = 0;  // damaged files that were replaced from memory or set aside
  };
  virtual ScrubFigures scrub_figures() const { return {}; }
};

// Whether the log holds files of a job that may continue: its servers write a log, and it is not
// known to have ended.
inline bool HoldsUnfinishedJob(const DurableLog& log) {
  return log.identity().has_value() && log.identity()->job().durability() != MEMORY &&
         !log.identity()->over();
}

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_DURABLE_LOG_H_
