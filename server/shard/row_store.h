// The rows of one table in one partition: weights and optimizer slots by key.
#ifndef PAWL_SERVER_SHARD_ROW_STORE_H_
#define PAWL_SERVER_SHARD_ROW_STORE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace pawl {

// Maps a key to a run of floats whose address never changes. Rows of up to
// kMaxSlabRowFloats lie together in slabs, so that a row costs no allocation of its
// own; larger ones (blocks) are allocated one by one. Not thread-safe.
//
// Invariants:
// 1. Every key's row has the number of floats that it was inserted with.
// 2. Rows of 16 floats and more begin on a cache line.
class RowStore {
 public:
  // `row_floats`: floats in every row, or 0 if they differ (blocks).
  explicit RowStore(size_t row_floats);
  RowStore(RowStore&&) = default;
  RowStore& operator=(RowStore&&) = default;

  size_t size() const { return index_.size(); }
  bool contains(uint64_t key) const { return index_.contains(key); }
  // Floats that are held, over all rows.
  uint64_t float_count() const { return float_count_; }

  // Fetches the index entry of a key that Find or Insert will soon ask for.
  void Prefetch(uint64_t key) const { index_.prefetch(key); }

  // Null if there is no such row.
  float* Find(uint64_t key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : found->second;
  }

  // Finds the row or makes one of `floats` floats with unspecified content; `inserted` says which.
  // REQUIRES: floats == row_floats, if that is not 0.
  float* FindOrInsert(uint64_t key, size_t floats, bool& inserted);

  // Calls visit(uint64_t key, const float* row) for every row, in no particular
  // order: for what does not depend on one.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [key, row] : index_) visit(key, static_cast<const float*>(row));
  }

  // In ascending order, so that whoever walks over the rows does so in the same order everywhere.
  std::vector<uint64_t> SortedKeys() const;

 private:
  struct Free {
    void operator()(float* floats) const { std::free(floats); }
  };
  using Floats = std::unique_ptr<float[], Free>;

  static Floats Allocate(size_t floats);

  size_t stride_;  // floats from one row of a slab to the next; 0: no slabs
  size_t rows_in_slab_;
  size_t rows_left_ = 0;  // in the last slab
  float* next_row_ = nullptr;
  uint64_t float_count_ = 0;
  std::vector<Floats> memory_;
  absl::flat_hash_map<uint64_t, float*> index_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_ROW_STORE_H_
