// Divides the data of a call into segments, the units that have push ids.
#ifndef PAWL_CLIENT_LIB_SESSION_SEGMENTS_H_
#define PAWL_CLIENT_LIB_SESSION_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/mutex.h"
#include "client_lib/session/key_groups.h"
#include "client_lib/table.h"
#include "proto/types.pb.h"

namespace pawl {

// The maximum size of a segment's values; a larger row or block is a segment of its own. Push ids
// depend on it: a recomputed step must have the same segments, so the limit never changes within a
// job, and segments do not depend on routing.
inline constexpr size_t kMaxSegmentValueBytes = size_t{1} << 20;

// A run of the distinct keys of one partition: the content of one segment.
struct KeyRange {
  uint32_t partition;
  // Indices into KeyGroups::keys().
  uint32_t begin;
  uint32_t count;
};

// The key runs of one table in one call, and memory to gather its rows. Reusable; not thread-safe.
class Segmenter {
 public:
  void BuildSparse(const Table& table, absl::Span<const uint64_t> keys, uint32_t partitions,
                   bool distinct);
  // The blocks of a dense table; they are divided alike in every call. `blocks` lists some blocks,
  // ascending; empty means all.
  void BuildDense(const Table& table, uint32_t partitions, absl::Span<const uint64_t> blocks = {});

  const KeyGroups& groups() const { return groups_; }
  absl::Span<const KeyRange> ranges() const { return ranges_; }

  void AppendKeys(const KeyRange& range, ByteView* view) const;
  // The size of a run's values as elements of `type`.
  size_t ValueBytes(const Table& table, const KeyRange& range, ElementType type = FLOAT32) const;

  // Allocates memory for the results of the next two functions for all runs. `type` is the type in
  // which the gradients are sent. Both functions return the segment's exponent
  // (PushSegment.exponent), which depends only on its gradients.
  void AllocateGradients(const Table& table, ElementType type = FLOAT32);
  // Sparse: gathers the gradients of the run's keys into memory of *this, or refers to `gradients`
  // if nothing has to change (KeyGroups::in_order, FLOAT32). Duplicates are summed as floats in the
  // order of the list. REQUIRES: AllocateGradients was called for the type.
  int32_t GatherRows(const Table& table, const KeyRange& range, const float* gradients,
                     ByteView* view, ElementType type = FLOAT32);
  // Dense: refers to the tensor, or to the blocks of BuildDense, which are contiguous. Elements of
  // another type than FLOAT32 are in memory of *this. REQUIRES: as above.
  int32_t AppendBlocks(const Table& table, const KeyRange& range, const float* blocks,
                       ByteView* view, ElementType type = FLOAT32);

  // Pull: copies the rows or blocks of a run to their destinations. REQUIRES: values.size() ==
  // ValueBytes(run).
  void Scatter(const Table& table, const KeyRange& range, const ByteView& values, float* out) const;

  size_t capacity_bytes() const;

 private:
  // Whether gradients of this type are sent from the caller's memory.
  bool IsSentInPlace(const Table& table, ElementType type) const;

  KeyGroups groups_;
  std::vector<KeyRange> ranges_;
  std::unique_ptr<char[]> gradients_;
  size_t gradient_bytes_ = 0;
  // The rows of one run before they are encoded.
  std::vector<float> rows_;
};

// Keeps Segmenters for later calls, up to a limit. Thread-safe.
class SegmenterPool {
 public:
  static constexpr size_t kMaxPooledBytes = size_t{256} << 20;
  static constexpr size_t kMaxPooled = 256;

  std::unique_ptr<Segmenter> Get();
  void Put(std::unique_ptr<Segmenter> segmenter);

 private:
  Mutex mu_;
  std::vector<std::unique_ptr<Segmenter>> free_ PAWL_GUARDED_BY(mu_);
  size_t bytes_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SEGMENTS_H_
