// The rows of one table in one partition: weights and optimizer slots by key.
#ifndef PAWL_SERVER_SHARD_ROW_STORE_H_
#define PAWL_SERVER_SHARD_ROW_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "server/shard/row_index.h"
#include "server/shard/shared_block.h"

namespace pawl {

// The rows of a RowStore at the moment of the hold, in no particular order. They never change. One
// thread at a time may read them; any thread may destroy them, also after the store.
class HeldRows {
 public:
  HeldRows() = default;

  uint64_t size() const { return rows_; }
  size_t slab_count() const { return slabs_.size(); }

  // Calls visit(uint64_t key, const float* row) for the rows of one slab. REQUIRES: the slab has
  // not been released.
  template <typename Visit>
  void ForEachInSlab(size_t slab, Visit visit) const {
    const uint64_t first = uint64_t{slab} << rows_shift_;
    const uint64_t count = std::min<uint64_t>(rows_ - first, uint64_t{1} << rows_shift_);
    const BlockLoan& loan = slabs_[slab];
    const float* const keys = loan.data() + loan.size() - (size_t{2} << rows_shift_);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t key;
      std::memcpy(&key, keys + 2 * i, sizeof(key));
      visit(key, loan.data() + i * stride_);
    }
  }
  // The same for all slabs.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t slab = 0; slab < slabs_.size(); ++slab) ForEachInSlab(slab, visit);
  }

  // Returns a slab, so that the store can change it without a copy.
  void Release(size_t slab) { BlockLoan released = std::move(slabs_[slab]); }

 private:
  friend class RowStore;

  std::vector<BlockLoan> slabs_;
  uint64_t rows_ = 0;
  size_t stride_ = 0;
  uint32_t rows_shift_ = 0;
};

// Maps a key to an array of floats. Rows lie with their keys in slabs of about kSlabFloats; a
// larger row has a slab of its own. The first change after a hold copies the slab. A hold thus
// costs one reference per slab, and memory only for the slabs that change while it exists. Not
// thread-safe.
//
// Invariants:
// 1. Every key's row keeps the number of floats that it was inserted with.
// 2. Rows of at least 16 floats begin at a multiple of 16 bytes, and on a cache line if their size
//    is a multiple of one.
// 3. A row's address stays the same until the row is changed after a hold.
class RowStore {
 public:
  // A job has hundreds of partitions, each with a slab in use, and a change after a hold copies
  // one.
  static constexpr size_t kSlabFloats = 4096;

  // `row_floats`: the number of floats in every row, or 0 if it varies (blocks).
  explicit RowStore(size_t row_floats);
  RowStore(RowStore&&) = default;
  RowStore& operator=(RowStore&&) = default;

  size_t size() const { return rows_; }
  bool contains(uint64_t key) const { return index_.Find(key) != RowIndex::kNone; }
  // The number of floats in all rows.
  uint64_t float_count() const { return float_count_; }

  // Prefetches the index entry of a key for Find or FindOrInsert.
  void Prefetch(uint64_t key) const { index_.Prefetch(key); }

  // Null if the row does not exist.
  const float* Find(uint64_t key) const {
    const uint32_t row = index_.Find(key);
    if (row == RowIndex::kNone) return nullptr;
    return slabs_[row >> rows_shift_].memory.data() + (row & row_mask_) * stride_;
  }

  // Returns the row for writing until the next Hold, or inserts one of `floats` floats with
  // unspecified content; `inserted` tells which. REQUIRES: floats == row_floats unless that is 0;
  // fewer than 2^32 rows.
  float* FindOrInsert(uint64_t key, size_t floats, bool& inserted) {
    const uint32_t row = index_.FindOrInsert(key, static_cast<uint32_t>(rows_));
    inserted = row == rows_;
    return inserted ? Insert(key, floats) : Writable(row);
  }

  // The present rows.
  HeldRows Hold() const;

  // Calls visit(uint64_t key, const float* row) for every row in insertion order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    Hold().ForEach(visit);
  }

 private:
  struct Slab {
    SharedBlock memory;
    // The number of holds when the slab was last known to be unshared.
    uint32_t holds;
  };

  float* Writable(uint32_t row) {
    Slab& slab = slabs_[row >> rows_shift_];
    if (slab.holds == holds_) return slab.memory.MutableUnlent() + (row & row_mask_) * stride_;
    return Unshared(slab) + (row & row_mask_) * stride_;
  }
  float* Unshared(Slab& slab);
  float* Insert(uint64_t key, size_t floats);

  size_t stride_;        // floats from one row of a slab to the next; 0: a slab has one row
  uint32_t rows_shift_;  // a slab has 2^rows_shift_ rows
  uint32_t row_mask_;
  uint64_t rows_ = 0;
  uint64_t float_count_ = 0;
  mutable uint32_t holds_ = 0;
  // Row i lies in slab i >> rows_shift_.
  std::vector<Slab> slabs_;
  RowIndex index_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_ROW_STORE_H_
