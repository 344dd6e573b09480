#include "server/replication/recent_entries.h"

#include <utility>

namespace pawl {

void RecentEntries::Add(const std::shared_ptr<const void>& owner, size_t message_bytes,
                        std::vector<ReplicationLane::Entry> entries) {
  if (entries.empty()) return;
  MutexLock lock(mu_);
  if (messages_.empty() || messages_.back().owner != owner) {
    messages_.push_back({owner, message_bytes, {}});
    // Two that come in turn are there many times.
    if (turns_[owner.get()]++ == 0) bytes_ += message_bytes;
  }
  for (ReplicationLane::Entry& entry : entries) {
    messages_.back().partitions.push_back(entry.partition);
    entries_[entry.partition].push_back(std::move(entry));
  }
  while (bytes_ > max_bytes_) {
    const auto turns = turns_.find(messages_.front().owner.get());
    if (--turns->second == 0) {
      bytes_ -= messages_.front().bytes;
      turns_.erase(turns);
    }
    for (const uint32_t partition : messages_.front().partitions) {
      const auto oldest = entries_.find(partition);
      oldest->second.pop_front();
      if (oldest->second.empty()) entries_.erase(oldest);
    }
    messages_.pop_front();
  }
}

std::optional<std::vector<ReplicationLane::Entry>> RecentEntries::Find(uint32_t partition, uint64_t first,
                                                                       uint64_t last) const {
  std::vector<ReplicationLane::Entry> found;
  if (first > last) return found;
  MutexLock lock(mu_);
  const auto entries = entries_.find(partition);
  if (entries == entries_.end()) return std::nullopt;
  uint64_t wanted = last;
  for (auto entry = entries->second.rbegin(); entry != entries->second.rend(); ++entry) {
    if (entry->index != wanted) continue;
    found.push_back(*entry);
    if (wanted == first) return std::vector<ReplicationLane::Entry>(found.rbegin(), found.rend());
    --wanted;
  }
  return std::nullopt;
}

}  // namespace pawl
