#include "server/shard/row_store.h"

#include <bit>

namespace pawl {
namespace {

// Wide rows are aligned for vector instructions. More would cost a row of 17 floats, with one slot,
// up to half of its size.
constexpr size_t kWideRowFloats = 16;
constexpr size_t kAlignmentFloats = 16 / sizeof(float);
constexpr size_t kKeyFloats = sizeof(uint64_t) / sizeof(float);
// How many slabs ahead to prefetch reference counts.
constexpr size_t kPrefetchDistance = 16;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

RowStore::RowStore(size_t row_floats)
    : stride_(row_floats < kWideRowFloats ? row_floats : RoundUp(row_floats, kAlignmentFloats)),
      rows_shift_(
          stride_ == 0 || stride_ > kSlabFloats ? 0 : std::bit_width(kSlabFloats / stride_) - 1),
      row_mask_((uint32_t{1} << rows_shift_) - 1) {}

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
  return memory + place * stride_;
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
