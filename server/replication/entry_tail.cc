#include "server/replication/entry_tail.h"

#include <utility>

namespace pawl {

void EntryTail::Add(const void* memory, size_t memory_bytes, ReplicationStream::Entry entry) {
  std::vector<Kept> dropped;
  MutexLock lock(mu_);
  const uint32_t partition = entry.partition;
  if (const auto kept = entries_.find(partition);
      kept != entries_.end() && kept->second.back().entry.index + 1 != entry.index) {
    DropAll(partition, dropped);
  }
  Memory& counted = memory_[memory];
  if (counted.entries++ == 0) bytes_ += counted.bytes = memory_bytes;
  bytes_ += entry_bytes_;
  entries_[partition].push_back({std::move(entry), memory});
  order_.push_back(partition);
  while (bytes_ > max_bytes_) {
    DropOldest(entries_.find(order_.front()), dropped);
    order_.pop_front();
  }
}

void EntryTail::Forget(uint32_t partition) {
  std::vector<Kept> dropped;
  MutexLock lock(mu_);
  DropAll(partition, dropped);
}

std::optional<std::vector<ReplicationStream::Entry>> EntryTail::Find(uint32_t partition,
                                                                     uint64_t first,
                                                                     uint64_t last) const {
  std::vector<ReplicationStream::Entry> found;
  if (first > last) return found;
  MutexLock lock(mu_);
  const auto kept = entries_.find(partition);
  if (kept == entries_.end()) return std::nullopt;
  const uint64_t oldest = kept->second.front().entry.index;
  if (first < oldest || last >= oldest + kept->second.size()) return std::nullopt;
  for (uint64_t index = first; index <= last; ++index)
    found.push_back(kept->second[index - oldest].entry);
  return found;
}

void EntryTail::DropOldest(Partitions::iterator partition, std::vector<Kept>& dropped) {
  dropped.push_back(std::move(partition->second.front()));
  partition->second.pop_front();
  if (partition->second.empty()) entries_.erase(partition);
  bytes_ -= entry_bytes_;
  const auto memory = memory_.find(dropped.back().memory);
  if (--memory->second.entries > 0) return;
  bytes_ -= memory->second.bytes;
  memory_.erase(memory);
}

void EntryTail::DropAll(uint32_t partition, std::vector<Kept>& dropped) {
  for (auto kept = entries_.find(partition); kept != entries_.end();
       kept = entries_.find(partition)) {
    DropOldest(kept, dropped);
  }
  std::erase(order_, partition);
}

}  // namespace pawl
