#include "client_lib/session/key_groups.h"

#include <algorithm>

#include "client_lib/base/partitioner.h"

namespace pawl {

void KeyGroups::Build(uint32_t table, absl::Span<const uint64_t> keys, uint32_t partitions,
                      bool distinct, uint32_t max_group_keys) {
  const uint32_t count = static_cast<uint32_t>(keys.size());
  partition_of_.resize(count);
  end_of_.assign(partitions, 0);
  in_order_ = distinct;
  uint32_t previous = 0;
  for (uint32_t position = 0; position < count; ++position) {
    const uint32_t partition = PartitionOf(table, keys[position], partitions);
    partition_of_[position] = partition;
    ++end_of_[partition];
    in_order_ = in_order_ && partition >= previous;
    previous = partition;
  }

  groups_.clear();
  uint32_t begin = 0;
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    const uint32_t size = end_of_[partition];
    end_of_[partition] = begin;
    if (size > 0) groups_.push_back(Group{partition, begin, begin + size});
    begin += size;
  }

  has_duplicates_ = false;
  if (in_order_) {
    keys_.assign(keys.begin(), keys.end());
    return DivideGroups(max_group_keys);
  }
  keys_.resize(count);
  first_.resize(count);
  for (uint32_t position = 0; position < count; ++position) {
    const uint32_t index = end_of_[partition_of_[position]]++;
    keys_[index] = keys[position];
    first_[index] = position;
  }
  if (!distinct) RemoveDuplicates();
  DivideGroups(max_group_keys);
}

void KeyGroups::DivideGroups(uint32_t max_group_keys) {
  if (std::all_of(groups_.begin(), groups_.end(),
                  [&](const Group& group) { return group.size() <= max_group_keys; })) {
    return;
  }
  undivided_.swap(groups_);
  groups_.clear();
  for (const Group& group : undivided_) {
    for (uint32_t begin = group.begin; begin < group.end; begin += max_group_keys) {
      groups_.push_back(
          {group.partition, begin, begin + std::min(max_group_keys, group.end - begin)});
    }
  }
}

// Group by group, so that the map stays in the processor's cache.
void KeyGroups::RemoveDuplicates() {
  uint32_t out = 0;
  for (Group& group : groups_) {
    const uint32_t begin = out;
    index_of_.clear();
    index_of_.reserve(group.size());
    for (uint32_t i = group.begin; i < group.end; ++i) {
      const uint64_t key = keys_[i];
      const uint32_t position = first_[i];
      const auto [it, is_new] = index_of_.try_emplace(key, out);
      if (is_new) {
        keys_[out] = key;
        first_[out] = position;
        if (has_duplicates_) last_[out] = position;
        ++out;
        continue;
      }
      if (!has_duplicates_) {
        // The first duplicate: up to here every key has one position.
        has_duplicates_ = true;
        next_.assign(partition_of_.size(), kNone);
        last_ = first_;
      }
      next_[last_[it->second]] = position;
      last_[it->second] = position;
    }
    group.begin = begin;
    group.end = out;
  }
  keys_.resize(out);
  first_.resize(out);
}

size_t KeyGroups::capacity_bytes() const {
  return (groups_.capacity() + undivided_.capacity()) * sizeof(Group) +
         keys_.capacity() * sizeof(uint64_t) +
         (first_.capacity() + next_.capacity() + partition_of_.capacity() + end_of_.capacity() +
          last_.capacity()) *
             sizeof(uint32_t) +
         index_of_.capacity() * (sizeof(uint64_t) * 2 + 1);
}

}  // namespace pawl
