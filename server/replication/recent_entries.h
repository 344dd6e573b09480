// The changes that this server's replicas were sent last.
#ifndef PAWL_SERVER_REPLICATION_RECENT_ENTRIES_H_
#define PAWL_SERVER_REPLICATION_RECENT_ENTRIES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/base/mutex.h"
#include "server/replication/lane.h"

namespace pawl {

// Of one server. What a backup may lack of another one's changes when their primary dies is what was under way then, which
// the senders' limits bound; with less room than that, the others get snapshots.
inline constexpr size_t kMaxRecentEntryBytes = size_t{64} << 20;

// Keeps the last entries that were applied, of all partitions together, so that a backup that becomes primary can send
// those that the other backups had not received yet (server/replication/README.md, "Failover"). Thread-safe; its lock is
// taken after a replica's.
class RecentEntries {
 public:
  explicit RecentEntries(size_t max_bytes = kMaxRecentEntryBytes) : max_bytes_(max_bytes) {}

  // `entries` lie in `owner`, a message of `message_bytes`, which is kept as long as any of them is.
  void Add(const std::shared_ptr<const void>& owner, size_t message_bytes, std::vector<ReplicationLane::Entry> entries);

  // The entries first to last of the partition, in order, of each index that which was added last; nullopt unless all are
  // there. Empty if first > last.
  std::optional<std::vector<ReplicationLane::Entry>> Find(uint32_t partition, uint64_t first, uint64_t last) const;

 private:
  struct Message {
    std::shared_ptr<const void> owner;
    size_t bytes = 0;
    // Of its entries, in their order.
    std::vector<uint32_t> partitions;
  };

  const size_t max_bytes_;
  mutable Mutex mu_;
  // The oldest first; one again whenever there was another one between its entries.
  std::deque<Message> messages_ PAWL_GUARDED_BY(mu_);
  // By owner, how often it is among them. Its bytes count once.
  absl::flat_hash_map<const void*, size_t> turns_ PAWL_GUARDED_BY(mu_);
  size_t bytes_ PAWL_GUARDED_BY(mu_) = 0;
  // The same entries by partition, in the same order.
  absl::flat_hash_map<uint32_t, std::deque<ReplicationLane::Entry>> entries_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_RECENT_ENTRIES_H_
