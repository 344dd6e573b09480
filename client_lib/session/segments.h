// How the data of a call is cut into segments, the units that have push ids.
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

// The values of a segment are at most this long (but at least one row or block).
// Part of what names a push: a step that is computed again must be cut alike, so this never
// changes within a job, and routing has no part in it.
inline constexpr size_t kMaxSegmentValueBytes = size_t{1} << 20;

// A run of the distinct keys of one partition.
struct KeyRange {
  uint32_t partition;
  // In KeyGroups::keys().
  uint32_t begin;
  uint32_t count;
};

// The cuts of one table in one call, and memory to gather its rows. Reusable; not thread-safe.
class Segmenter {
 public:
  void BuildSparse(const Table& table, absl::Span<const uint64_t> keys, uint32_t partitions,
                   bool distinct);
  // The blocks of a dense table: the same in every call. `blocks`: those that are meant, ascending;
  // empty: all.
  void BuildDense(const Table& table, uint32_t partitions, absl::Span<const uint64_t> blocks = {});

  const KeyGroups& groups() const { return groups_; }
  absl::Span<const KeyRange> cuts() const { return cuts_; }

  void AppendKeys(const KeyRange& cut, ByteView* view) const;
  // Bytes of the values of a cut, as numbers of the type.
  size_t ValueBytes(const Table& table, const KeyRange& cut, ElementType type = FLOAT32) const;

  // Memory for what the two functions below make of all cuts. `type`: as what the gradients are to
  // be sent. Both return the segment's exponent (PushSegment.exponent), a function of its gradients
  // alone.
  void AllocateGradients(const Table& table, ElementType type = FLOAT32);
  // Sparse: the gradients of the cut's keys, duplicates added up as floats in the order of the
  // list, in memory of *this. REQUIRES: AllocateGradients was called for the type.
  int32_t GatherRows(const Table& table, const KeyRange& cut, const float* gradients,
                     ByteView* view, ElementType type = FLOAT32);
  // Dense: refers to the tensor, or to the blocks of BuildDense, which lie one after the other; as
  // another type than FLOAT32 they are in memory of *this. REQUIRES: as above.
  int32_t AppendBlocks(const Table& table, const KeyRange& cut, const float* blocks, ByteView* view,
                       ElementType type = FLOAT32);

  // Pull: copies the rows or blocks of a cut to their places.
  // REQUIRES: values.size() == ValueBytes(cut).
  void Scatter(const Table& table, const KeyRange& cut, const ByteView& values, float* out) const;

  size_t capacity_bytes() const;

 private:
  KeyGroups groups_;
  std::vector<KeyRange> cuts_;
  std::unique_ptr<char[]> gradients_;
  size_t gradient_bytes_ = 0;
  // The rows of one cut before they are encoded.
  std::vector<float> rows_;
};

// Keeps Segmenter for the next call, up to a bound. Thread-safe.
class SegmenterPool {
 public:
  static constexpr size_t kMaxPooledBytes = size_t{256} << 20;
  static constexpr size_t kMaxPooled = 256;

  std::unique_ptr<Segmenter> Get();
  void Put(std::unique_ptr<Segmenter> cuts);

 private:
  Mutex mu_;
  std::vector<std::unique_ptr<Segmenter>> free_ PAWL_GUARDED_BY(mu_);
  size_t bytes_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SEGMENTS_H_
