#include "server/replication/recent_entries.h"

#include <iterator>
#include <utility>

namespace pawl {

void RecentEntries::Add(const std::shared_ptr<const void>& owner, size_t message_bytes,
                        std::vector<ReplicationLane::Entry> entries) {
  if (entries.empty()) return;
  MutexLock lock(mu_);
  if (!messages_.empty() && messages_.back().owner == owner) {
    std::vector<ReplicationLane::Entry>& present = messages_.back().entries;
    present.insert(present.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  } else {
    messages_.push_back({owner, message_bytes, std::move(entries)});
    bytes_ += message_bytes;
  }
  while (bytes_ > max_bytes_) {
    bytes_ -= messages_.front().bytes;
    messages_.pop_front();
  }
}

std::optional<std::vector<ReplicationLane::Entry>> RecentEntries::Find(uint32_t partition, uint64_t first,
                                                                       uint64_t last) const {
  std::vector<ReplicationLane::Entry> found;
  if (first > last) return found;
  MutexLock lock(mu_);
  uint64_t wanted = last;
  for (auto message = messages_.rbegin(); message != messages_.rend(); ++message) {
    for (auto entry = message->entries.rbegin(); entry != message->entries.rend(); ++entry) {
      if (entry->partition != partition || entry->index != wanted) continue;
      found.push_back(*entry);
      if (wanted == first) return std::vector<ReplicationLane::Entry>(found.rbegin(), found.rend());
      --wanted;
    }
  }
  return std::nullopt;
}

}  // namespace pawl
