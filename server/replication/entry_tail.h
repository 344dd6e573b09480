// The entry tail: the latest log entries of this server's replicas, in memory.
#ifndef PAWL_SERVER_REPLICATION_ENTRY_TAIL_H_
#define PAWL_SERVER_REPLICATION_ENTRY_TAIL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/mutex.h"
#include "server/replication/replication_stream.h"

namespace pawl {

// The limit for a server: the messages that entries refer to.
inline constexpr size_t kMaxTailBytes = size_t{64} << 20;
// The memory of an entry besides its message; most entries of small changes are smaller than that.
inline constexpr size_t kTailEntryBytes = 512;

// Keeps the latest applied entries of all partitions for followers that lack a few: after a
// failover, or after a short network failure. Copies nothing. Thread-safe; its lock is acquired
// after a replica's.
//
// Invariant: the entries of a partition are consecutive. Forget is called, under the replica's
// lock, when a snapshot or an earlier state replaces the replica. It is not called when the
// partition is dropped or starts again: then its entries are void until the next Add, which drops
// them unless it continues them. Callers ask only for entries up to their replica's last one, which
// came with an Add or a snapshot.
class EntryTail {
 public:
  explicit EntryTail(size_t max_bytes = kMaxTailBytes, size_t entry_bytes = kTailEntryBytes)
      : max_bytes_(max_bytes), entry_bytes_(entry_bytes) {}

  // The entry lies in `memory`, whose `memory_bytes` count once for all entries in it.
  void Add(const void* memory, size_t memory_bytes, ReplicationStream::Entry entry);
  void Forget(uint32_t partition);

  // The entries `first` to `last`, in order; nullopt if any is missing. Empty if first > last.
  std::optional<std::vector<ReplicationStream::Entry>> Find(uint32_t partition, uint64_t first,
                                                            uint64_t last) const;

 private:
  struct Kept {
    ReplicationStream::Entry entry;
    const void* memory = nullptr;
  };
  struct Memory {
    size_t entries = 0;
    size_t bytes = 0;
  };
  using Partitions = absl::flat_hash_map<uint32_t, std::deque<Kept>>;

  // Moves the oldest entry of the partition to `dropped`, which is destroyed without the lock.
  void DropOldest(Partitions::iterator partition, std::vector<Kept>& dropped) PAWL_REQUIRES(mu_);
  void DropAll(uint32_t partition, std::vector<Kept>& dropped) PAWL_REQUIRES(mu_);

  const size_t max_bytes_;
  const size_t entry_bytes_;
  mutable Mutex mu_;
  Partitions entries_ PAWL_GUARDED_BY(mu_);
  // The partition of each entry, the oldest first.
  std::deque<uint32_t> order_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, Memory> memory_ PAWL_GUARDED_BY(mu_);
  size_t bytes_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_ENTRY_TAIL_H_
