#include "server/shard/row_store.h"

#include <algorithm>
#include <new>

namespace pawl {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kCacheLineFloats = kCacheLineBytes / sizeof(float);
// A job has hundreds of partitions, each with a slab begun: small enough that these do not count.
constexpr size_t kSlabFloats = 16 * 1024;
constexpr size_t kMaxSlabRowFloats = kSlabFloats / 4;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

RowStore::RowStore(size_t row_floats) : stride_(0), rows_in_slab_(0) {
  if (row_floats == 0 || row_floats > kMaxSlabRowFloats) return;
  stride_ = row_floats < kCacheLineFloats ? row_floats : RoundUp(row_floats, kCacheLineFloats);
  rows_in_slab_ = kSlabFloats / stride_;
}

RowStore::Floats RowStore::Allocate(size_t floats) {
  void* memory = std::aligned_alloc(kCacheLineBytes, RoundUp(floats * sizeof(float), kCacheLineBytes));
  if (memory == nullptr) throw std::bad_alloc();
  return Floats(static_cast<float*>(memory));
}

float* RowStore::FindOrInsert(uint64_t key, size_t floats, bool& inserted) {
  const auto [entry, is_new] = index_.try_emplace(key, nullptr);
  inserted = is_new;
  if (!is_new) return entry->second;
  if (stride_ == 0) {
    memory_.push_back(Allocate(floats));
    entry->second = memory_.back().get();
  } else {
    if (rows_left_ == 0) {
      memory_.push_back(Allocate(rows_in_slab_ * stride_));
      next_row_ = memory_.back().get();
      rows_left_ = rows_in_slab_;
    }
    entry->second = next_row_;
    next_row_ += stride_;
    --rows_left_;
  }
  float_count_ += floats;
  return entry->second;
}

std::vector<uint64_t> RowStore::SortedKeys() const {
  std::vector<uint64_t> keys;
  keys.reserve(index_.size());
  for (const auto& [key, row] : index_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace pawl
