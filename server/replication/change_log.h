// Where a server writes down the changes of its replicas before they are acknowledged.
#ifndef PAWL_SERVER_REPLICATION_CHANGE_LOG_H_
#define PAWL_SERVER_REPLICATION_CHANGE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/bytes.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {

// A snapshot file that was written and does not count yet. Destroyed without ChangeLog::Replace, it
// is deleted.
class StoredSnapshot {
 public:
  virtual ~StoredSnapshot() = default;
};

// A change that was read from the log.
struct StoredEntry {
  uint64_t index = 0;
  uint64_t term = 0;
  // A serialized LogEntry; `owner` keeps its memory.
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

// Thread-safe. Says through a callback of the implementation that more of a partition is durable
// (DataPlane::OnDurable). Its locks are taken after a replica's.
//
// The log of a partition is one run of entries, from the first or from a snapshot on. Append,
// Replace, Truncate and Drop only queue, in the order of the calls, and are called under the
// replica's lock: the log is always what the replica was at some moment, also after a crash.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;

  // OK if changes with so many bytes can be taken now: ask before a change is applied.
  // RESOURCE_EXHAUSTED, with the reason, while the disk is full or fails or too much waits to be
  // written.
  virtual absl::Status CheckRoom(uint64_t bytes) const = 0;

  // Up to which entry the partition's log is durable; 0 while a Replace or Truncate is not.
  // REQUIRES: the replica's lock, so that it is the present replica's log.
  virtual uint64_t DurableIndex(uint32_t partition) const = 0;
  // Waits until the log is durable up to `index`, for a thread that has nothing else to do and no
  // lock. UNAVAILABLE: it takes too long.
  virtual absl::Status AwaitDurable(uint32_t partition, uint64_t index) const = 0;

  // A serialized LogEntry of that index and term. Does not wait for the disk. REQUIRES: `index`
  // follows the last one.
  virtual void Append(uint32_t partition, uint64_t index, uint64_t term, const ByteView& entry,
                      std::shared_ptr<const void> owner) = 0;

  // Writes a snapshot to a file that a crash discards. Takes as long as the snapshot is large; call
  // it without the replica's lock. Errors: the disk's. UNAVAILABLE: a snapshot of the same index is
  // still being stored; retry.
  virtual absl::StatusOr<std::unique_ptr<StoredSnapshot>> StoreSnapshot(uint32_t partition,
                                                                        HeldSnapshot snapshot) = 0;
  // From here on the partition's log is that snapshot. Everything before counts until the
  // replacement is durable, which is reported like an entry with the snapshot's index.
  virtual void Replace(uint32_t partition, std::unique_ptr<StoredSnapshot> snapshot) = 0;

  // The replica as it was after change `index`, from the partition's snapshots and entries. Changes
  // nothing; takes as long as recovering the partition; call it without the replica's lock, while
  // no change of the replica can come. NOT_FOUND: the log does not reach back that far.
  // UNAVAILABLE: it takes too long to write what is queued.
  virtual absl::StatusOr<std::unique_ptr<Partition>> ReadBack(uint32_t partition,
                                                              uint64_t index) = 0;
  // ReadBack, whose result `done` gets without locks: before this returns, or later, or not at all
  // if the log stops before.
  using ReadBackDone = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Partition>>)>;
  virtual void ReadBackThen(uint32_t partition, uint64_t index, ReadBackDone done) {
    done(ReadBack(partition, index));
  }
  // From here on the partition's log ends at `index`. The durability of the truncation is reported
  // like that of an entry of that index. On an error nothing has changed, and the replica must stay
  // as it is; it can get a snapshot instead. ABORTED: ReadBack has succeeded too long ago, so that
  // what it has read may be deleted. UNAVAILABLE: the log has stopped. REQUIRES: since
  // ReadBack(partition, index) has succeeded, nothing of the partition was appended or cut.
  [[nodiscard]] virtual absl::Status Truncate(uint32_t partition, uint64_t index) = 0;

  // Reads the entries `first` to `last` on a thread of the log's and hands them to `done` there,
  // without locks: all of them, in order; or, if they have more than `max_bytes`, the first ones,
  // at least one. `done` is called exactly once. NOT_FOUND: the log does not reach back to `first`
  // any more. ABORTED: the log was cut, or has stopped; if before the call, `done` is called on the
  // caller's thread, which must hold no lock. UNAVAILABLE: entries that were queued are still not
  // written, because the disk is full or does not answer.
  using EntriesRead = absl::AnyInvocable<void(absl::StatusOr<std::vector<StoredEntry>>)>;
  virtual void ReadEntries(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes,
                           EntriesRead done) = 0;

  // The partition is not hosted here any more, or begins again with change 1. Does not wait for the
  // disk.
  virtual void Drop(uint32_t partition) = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_CHANGE_LOG_H_
