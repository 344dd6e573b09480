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
#include "client_lib/rpc/codec.h"
#include "client_lib/session/key_groups.h"
#include "client_lib/table.h"
#include "proto/types.pb.h"

namespace pawl {

// The maximum size of a segment's values; a larger row or block is a segment of its own. Push ids
// depend on it: a recomputed step must have the same segments, so the limit never changes within a
// job, and segments do not depend on routing.
inline constexpr size_t kMaxSegmentValueBytes = size_t{1} << 20;

// The segments of one table in one call, and memory to gather its rows. Reusable; not thread-safe.
//
// A segment is a group of KeyGroups. Dense tables have block numbers as keys, so they are divided
// alike in every call.
class Segmenter {
 public:
  using Segment = KeyGroups::Group;

  // `keys`: the keys of the rows; or some blocks, ascending, where empty means all. `distinct`: no
  // key is repeated, as no block is.
  void Build(const Table& table, absl::Span<const uint64_t> keys, uint32_t partitions,
             bool distinct);

  absl::Span<const Segment> segments() const { return groups_.groups(); }
  absl::Span<const uint64_t> keys() const { return groups_.keys(); }

  // The keys of the segment, which stay in memory of *this.
  ByteView Keys(const Segment& segment) const;
  // The size of a segment's values as elements of `type`.
  size_t ValueBytes(const Table& table, const Segment& segment, ElementType type = FLOAT32) const;

  // Allocates memory for the gradients of all segments. `type` is the type in which they are sent.
  void AllocateGradients(const Table& table, ElementType type = FLOAT32);
  // Push: sets the values, their type and the exponent of `out`, which depends only on the
  // gradients. `gradients` are those of all keys in the order of Build, or of the whole tensor.
  // FLOAT32 blocks, and rows that are in order (KeyGroups::in_order), are referred to. Other
  // gradients are in memory of *this; those of a repeated key are summed as floats in the order of
  // the list. REQUIRES: AllocateGradients was called for the type.
  void Gather(const Table& table, const Segment& segment, const float* gradients, ElementType type,
              SegmentView& out);

  // The size of the slots of a segment's rows or blocks.
  size_t SlotBytes(const Table& table, const Segment& segment) const;
  // Assign: sets the slots of `out`, like Gather. REQUIRES: no key is repeated; AllocateSlots was
  // called.
  void AllocateSlots(const Table& table);
  void GatherSlots(const Table& table, const Segment& segment, const float* slots,
                   SegmentView& out);

  // Pull: copies the rows or blocks of a segment to their destinations. REQUIRES: values.size() ==
  // ValueBytes(segment).
  void Scatter(const Table& table, const Segment& segment, const ByteView& values,
               float* out) const;
  // The same for slots. REQUIRES: slots.size() == SlotBytes(segment).
  void ScatterSlots(const Table& table, const Segment& segment, const ByteView& slots,
                    float* out) const;

  size_t capacity_bytes() const;

 private:
  // Whether gradients of this type are sent from the caller's memory.
  bool IsSentInPlace(const Table& table, ElementType type) const;
  void GatherRows(const Table& table, const Segment& segment, const float* gradients,
                  SegmentView& out);
  void GatherBlocks(const Table& table, const Segment& segment, const float* gradients,
                    SegmentView& out);

  KeyGroups groups_;
  std::unique_ptr<char[]> gradients_;
  size_t gradient_bytes_ = 0;
  // The rows of one segment before they are encoded.
  std::vector<float> rows_;
  // The slots of all segments.
  std::vector<float> slots_;
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
