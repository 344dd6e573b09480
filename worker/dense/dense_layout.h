// How the dense part of a model lies in memory, which pieces of it travel together, and their
// order.
#ifndef PAWL_WORKER_DENSE_DENSE_LAYOUT_H_
#define PAWL_WORKER_DENSE_DENSE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// A block of a table as the servers store it: the unit of an update rule.
struct DenseBlock {
  // Number among the dense tables.
  size_t table = 0;
  // Number in the table.
  uint64_t number = 0;
  // The block's range in the arrays of all weights and of all slots.
  size_t begin = 0;
  size_t count = 0;
  size_t slots_begin = 0;
  size_t slots_count = 0;
};

// The blocks of one collective operation: a run.
struct DenseBucket {
  // Range [first_block, end_block) of the layout's blocks, and the ranges of its weights and slots.
  size_t first_block = 0;
  size_t end_block = 0;
  size_t begin = 0;
  size_t count = 0;
  size_t slots_begin = 0;
  size_t slots_count = 0;
  // The tables of the bucket, [first_table, end_table).
  size_t first_table = 0;
  size_t end_table = 0;
};

// The bucket size if the job sets none. About 32 buckets: small enough that the parameters the
// forward pass needs first do not wait long behind the current bucket and the next one; large
// enough that the fixed cost of a collective does not dominate. The limits keep the fixed cost low
// and the overlap possible.
inline constexpr uint64_t kSmallestDefaultBucketBytes = uint64_t{256} << 10;
inline constexpr uint64_t kLargestDefaultBucketBytes = uint64_t{1} << 20;
uint64_t DefaultBucketBytes(const std::vector<uint64_t>& elements);

// All weights in one array, in the order in which the forward pass needs the tables, and all slots
// in another, block by block. A bucket is a run of whole blocks of about `bucket_bytes`: larger
// tables are split and small ones are fused. Buckets are filled from the last table on, whose
// gradients are ready first, and numbered from the first table on, which is needed first.
//
// The same on every member of a group. Immutable, hence thread-safe.
class DenseLayout {
 public:
  // `elements`: for each dense table, in the order of need. REQUIRES: none is 0. `bucket_bytes` 0
  // means DefaultBucketBytes.
  DenseLayout(const std::vector<uint64_t>& elements, const UpdateRule& rule, uint64_t bucket_bytes);

  size_t tables() const { return table_begin_.size() - 1; }
  size_t elements() const { return table_begin_.back(); }
  size_t slots() const { return slots_begin_.back(); }
  absl::Span<const DenseBlock> blocks() const { return blocks_; }
  absl::Span<const DenseBucket> buckets() const { return buckets_; }

  // Where a table's weights and slots begin.
  size_t table_begin(size_t table) const { return table_begin_[table]; }
  size_t table_elements(size_t table) const {
    return table_begin_[table + 1] - table_begin_[table];
  }
  size_t table_slots_begin(size_t table) const { return slots_begin_[table]; }
  size_t table_slots(size_t table) const { return slots_begin_[table + 1] - slots_begin_[table]; }
  // The buckets that hold parts of the table, [first, end).
  size_t first_bucket(size_t table) const { return first_bucket_[table]; }
  size_t end_bucket(size_t table) const { return end_bucket_[table]; }

 private:
  // For each table, and the end.
  std::vector<size_t> table_begin_;
  std::vector<size_t> slots_begin_;
  std::vector<DenseBlock> blocks_;
  std::vector<DenseBucket> buckets_;
  std::vector<size_t> first_bucket_;
  std::vector<size_t> end_bucket_;
};

// Chooses the next bucket of a step. Every member asks with the same numbers and gets the same
// answers, so members need not announce what comes next.
//
// If a bucket travelled that one member has computed and another has not, it would block the link
// for others that are ready. So a bucket counts as ready only when it is known to be ready with all
// members. Gradients become ready from the last bucket on (DenseLayout), so one number describes a
// member's progress: the first bucket from which on all are ready.
//
// Used by one thread.
class BucketOrder {
 public:
  // Starts a step. `left`: for each bucket, whether it still has to travel.
  void Begin(std::vector<bool> left) { left_ = std::move(left); }
  // Returns the first bucket in the order of need that is left and not before `ready_from`. If
  // there is none, returns the last bucket that is left, which is the first to become ready.
  // Returns nothing if none is left.
  std::optional<size_t> Next(size_t ready_from) const;
  // The bucket has been started. REQUIRES: it was left.
  void Start(size_t bucket) { left_[bucket] = false; }

  bool IsLeft(size_t bucket) const { return left_[bucket]; }

 private:
  std::vector<bool> left_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_LAYOUT_H_
