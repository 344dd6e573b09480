#include "server/shard/row_store.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pawl {
namespace internal {
namespace {

std::array<uint8_t, size_t{1} << kIndexHashBits> SpreadHashes() {
  std::array<uint8_t, size_t{1} << kIndexHashBits> map_of{};
  // The first log2(1 + share) of the maps have the first `share` of the hashes.
  for (size_t i = 0; i < map_of.size(); ++i) {
    const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(map_of.size());
    map_of[i] = static_cast<uint8_t>(std::log2(1 + share) * static_cast<double>(kIndexMaps));
  }
  return map_of;
}

}  // namespace

const std::array<uint8_t, size_t{1} << kIndexHashBits> kIndexMapOf = SpreadHashes();

}  // namespace internal

namespace {

constexpr size_t kCacheLineFloats = internal::kCacheLineBytes / sizeof(float);
constexpr size_t kKeyFloats = sizeof(uint64_t) / sizeof(float);
// Smaller indexes use one map, because there are many partitions and tables.
constexpr size_t kMaxRowsOfOneMap = 8192;
// How many slabs ahead to prefetch reference counts.
constexpr size_t kPrefetchDistance = 16;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

RowStore::RowStore(size_t row_floats)
    : stride_(row_floats < kCacheLineFloats ? row_floats : RoundUp(row_floats, kCacheLineFloats)),
      rows_shift_(
          stride_ == 0 || stride_ > kSlabFloats ? 0 : std::bit_width(kSlabFloats / stride_) - 1),
      row_mask_((uint32_t{1} << rows_shift_) - 1),
      index_(1) {}

float* RowStore::Unshared(Slab& slab) {
  float* const memory = slab.memory.Mutable();
  slab.holds = holds_;
  return memory;
}

float* RowStore::Insert(uint64_t key, size_t floats) {
  const uint32_t row = static_cast<uint32_t>(rows_++);
  const uint32_t place = row & row_mask_;
  if (place == 0) {
    const size_t row_floats = stride_ == 0 ? floats : stride_ << rows_shift_;
    slabs_.push_back(
        {SharedBlock(RoundUp(row_floats, kKeyFloats) + (kKeyFloats << rows_shift_)), holds_});
  }
  float_count_ += floats;
  float* const memory = slabs_.back().holds == holds_ ? slabs_.back().memory.MutableUnlent()
                                                      : Unshared(slabs_.back());
  float* const keys = memory + slabs_.back().memory.size() - (kKeyFloats << rows_shift_);
  std::memcpy(keys + kKeyFloats * place, &key, sizeof(key));
  if (rows_ == kMaxRowsOfOneMap) SplitIndex();
  return memory + place * stride_;
}

void RowStore::SplitIndex() {
  std::vector<IndexMap> maps(kIndexMaps);
  for (const auto& [key, row] : index_.front()) maps[MapOf(key)].emplace(key, row);
  index_ = std::move(maps);
}

HeldRows RowStore::Hold() const {
  HeldRows held;
  held.slabs_.reserve(slabs_.size());
  for (size_t i = 0; i < slabs_.size(); ++i) {
    if (i + kPrefetchDistance < slabs_.size()) slabs_[i + kPrefetchDistance].memory.PrefetchLend();
    held.slabs_.push_back(slabs_[i].memory.Lend());
  }
  held.rows_ = rows_;
  held.stride_ = stride_;
  held.rows_shift_ = rows_shift_;
  ++holds_;
  return held;
}

}  // namespace pawl
