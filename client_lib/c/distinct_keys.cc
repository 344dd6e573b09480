#include "client_lib/c/distinct_keys.h"

#include <algorithm>
#include <random>

#include "client_lib/base/partitioner.h"

namespace pawl::c {

DistinctKeys::DistinctKeys()
    : salt_((uint64_t{std::random_device()()} << 32) ^ std::random_device()()) {}

void DistinctKeys::Clear(size_t keys) {
  size_t slots = 16;
  while (slots < 2 * keys) slots *= 2;
  slots_.assign(slots, 0);
  slot_mask_ = slots - 1;
}

size_t DistinctKeys::Find(uint32_t table, absl::Span<const uint64_t> keys, uint32_t partitions,
                          int64_t first, uint64_t* distinct, int64_t* places) {
  Clear(keys.size());
  keys_.clear();
  partition_of_.clear();
  end_of_.assign(partitions, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t key = keys[i];
    size_t at = Mix64(key ^ salt_) & slot_mask_;
    while (slots_[at] != 0 && keys_[slots_[at] - 1] != key) at = (at + 1) & slot_mask_;
    if (slots_[at] == 0) {
      keys_.push_back(key);
      slots_[at] = static_cast<uint32_t>(keys_.size());
      partition_of_.push_back(PartitionOf(table, key, partitions));
      ++end_of_[partition_of_.back()];
    }
    places[i] = slots_[at] - 1;
  }
  uint32_t begin = 0;
  for (uint32_t& end : end_of_) {
    const uint32_t size = end;
    end = begin;
    begin += size;
  }
  position_of_.resize(keys_.size());
  for (size_t number = 0; number < keys_.size(); ++number) {
    const uint32_t position = end_of_[partition_of_[number]]++;
    distinct[position] = keys_[number];
    position_of_[number] = position;
  }
  for (size_t i = 0; i < keys.size(); ++i) places[i] = first + position_of_[places[i]];
  const size_t found = keys_.size();
  if (kept_bytes() > kMaxKeptBytes) {
    slots_ = std::vector<uint32_t>();
    keys_ = std::vector<uint64_t>();
    partition_of_ = std::vector<uint32_t>();
    position_of_ = std::vector<uint32_t>();
  }
  return found;
}

size_t DistinctKeys::kept_bytes() const {
  return keys_.capacity() * sizeof(uint64_t) +
         (slots_.capacity() + partition_of_.capacity() + position_of_.capacity()) *
             sizeof(uint32_t);
}

}  // namespace pawl::c
