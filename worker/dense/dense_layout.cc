#include "worker/dense/dense_layout.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "client_lib/base/partitioner.h"

namespace pawl {

uint64_t DefaultBucketBytes(const std::vector<uint64_t>& elements) {
  constexpr uint64_t kBuckets = 32;
  const uint64_t bytes =
      std::accumulate(elements.begin(), elements.end(), uint64_t{0}) * sizeof(float);
  return std::clamp(bytes / kBuckets, kSmallestDefaultBucketBytes, kLargestDefaultBucketBytes);
}

DenseLayout::DenseLayout(const std::vector<uint64_t>& elements, const UpdateRule& rule,
                         uint64_t bucket_bytes) {
  if (bucket_bytes == 0) bucket_bytes = DefaultBucketBytes(elements);
  size_t begin = 0;
  size_t slots_begin = 0;
  for (size_t t = 0; t < elements.size(); ++t) {
    table_begin_.push_back(begin);
    slots_begin_.push_back(slots_begin);
    for (uint64_t done = 0, number = 0; done < elements[t]; done += kBlockElements, ++number) {
      DenseBlock& block = blocks_.emplace_back();
      block.table = t;
      block.number = number;
      block.begin = begin;
      block.count = std::min(kBlockElements, elements[t] - done);
      block.slots_begin = slots_begin;
      block.slots_count = rule.SlotCount(block.count);
      begin += block.count;
      slots_begin += block.slots_count;
    }
  }
  table_begin_.push_back(begin);
  slots_begin_.push_back(slots_begin);

  for (size_t end = blocks_.size(); end > 0;) {
    size_t first = end - 1;
    size_t bytes = blocks_[first].count * sizeof(float);
    while (first > 0 && bytes + blocks_[first - 1].count * sizeof(float) <= bucket_bytes) {
      bytes += blocks_[--first].count * sizeof(float);
    }
    const DenseBlock& last = blocks_[end - 1];
    DenseBucket& bucket = buckets_.emplace_back();
    bucket.first_block = first;
    bucket.end_block = end;
    bucket.begin = blocks_[first].begin;
    bucket.count = last.begin + last.count - bucket.begin;
    bucket.slots_begin = blocks_[first].slots_begin;
    bucket.slots_count = last.slots_begin + last.slots_count - bucket.slots_begin;
    bucket.first_table = blocks_[first].table;
    bucket.end_table = last.table + 1;
    end = first;
  }
  std::reverse(buckets_.begin(), buckets_.end());

  first_bucket_.assign(elements.size(), buckets_.size());
  end_bucket_.assign(elements.size(), 0);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t t = buckets_[b].first_table; t < buckets_[b].end_table; ++t) {
      first_bucket_[t] = std::min(first_bucket_[t], b);
      end_bucket_[t] = std::max(end_bucket_[t], b + 1);
    }
  }
}

std::optional<size_t> BucketOrder::Next(size_t ready_from) const {
  const auto ready =
      left_.begin() + static_cast<std::ptrdiff_t>(std::min(ready_from, left_.size()));
  if (const auto first = std::find(ready, left_.end(), true); first != left_.end())
    return first - left_.begin();
  const auto last = std::find(left_.rbegin(), left_.rend(), true);
  if (last == left_.rend()) return std::nullopt;
  return std::distance(last, left_.rend()) - 1;
}

}  // namespace pawl
