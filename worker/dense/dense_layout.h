// How the dense part of a model lies in memory, and which pieces of it travel together.
#ifndef PAWL_WORKER_DENSE_DENSE_LAYOUT_H_
#define PAWL_WORKER_DENSE_DENSE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// A block of a table, as the servers have it: what an update rule sees at a time.
struct DenseBlock {
  // Among the dense tables.
  size_t table = 0;
  // In the table.
  uint64_t number = 0;
  // Its weights among all weights, and its slots among all slots.
  size_t begin = 0;
  size_t count = 0;
  size_t slots_begin = 0;
  size_t slots_count = 0;
};

// What one collective operation carries: a run of blocks.
struct DenseBucket {
  // Of the layout's blocks, [first_block, end_block); of weights and slots likewise.
  size_t first_block = 0;
  size_t end_block = 0;
  size_t begin = 0;
  size_t count = 0;
  size_t slots_begin = 0;
  size_t slots_count = 0;
  // Its tables, [first_table, end_table).
  size_t first_table = 0;
  size_t end_table = 0;
};

// The size of buckets where the job says none: small enough that they are some 32, since what the
// forward pass needs first waits for the bucket under way and the one that is chosen already; but
// none so small, or so large, that a collective's own time is most of it, or nothing overlaps.
inline constexpr uint64_t kSmallestDefaultBucketBytes = uint64_t{256} << 10;
inline constexpr uint64_t kLargestDefaultBucketBytes = uint64_t{1} << 20;
uint64_t DefaultBucketBytes(const std::vector<uint64_t>& elements);

// All weights one after the other, in the order in which the forward pass needs the tables, and
// likewise all slots, block by block. A bucket is a run of whole blocks of about `bucket_bytes`:
// tables that are larger are cut, small ones fused. Buckets are filled from the last table on,
// whose gradients are ready first, and numbered from the first one on, which is needed first.
//
// The same on every member of a group. Immutable, hence thread-safe.
class DenseLayout {
 public:
  // `elements` of each dense table, in the order of need. REQUIRES: none is 0. Without
  // `bucket_bytes`: DefaultBucketBytes.
  DenseLayout(const std::vector<uint64_t>& elements, const UpdateRule& rule, uint64_t bucket_bytes);

  size_t tables() const { return table_begin_.size() - 1; }
  size_t elements() const { return table_begin_.back(); }
  size_t slots() const { return slots_begin_.back(); }
  absl::Span<const DenseBlock> blocks() const { return blocks_; }
  absl::Span<const DenseBucket> buckets() const { return buckets_; }

  // Where a table's weights and slots lie.
  size_t table_begin(size_t table) const { return table_begin_[table]; }
  size_t table_elements(size_t table) const {
    return table_begin_[table + 1] - table_begin_[table];
  }
  size_t table_slots_begin(size_t table) const { return slots_begin_[table]; }
  size_t table_slots(size_t table) const { return slots_begin_[table + 1] - slots_begin_[table]; }
  // The buckets that have parts of the table, [first, end).
  size_t first_bucket(size_t table) const { return first_bucket_[table]; }
  size_t end_bucket(size_t table) const { return end_bucket_[table]; }

 private:
  // Of each table, and the end.
  std::vector<size_t> table_begin_;
  std::vector<size_t> slots_begin_;
  std::vector<DenseBlock> blocks_;
  std::vector<DenseBucket> buckets_;
  std::vector<size_t> first_bucket_;
  std::vector<size_t> end_bucket_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_LAYOUT_H_
