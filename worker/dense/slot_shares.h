// Tracks the versions of a process's slots when every process updates only a share of each bucket.
#ifndef PAWL_WORKER_DENSE_SLOT_SHARES_H_
#define PAWL_WORKER_DENSE_SLOT_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/update_rule.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_state.h"

namespace pawl {

// A run of a bucket's elements.
struct DenseRange {
  size_t begin = 0;
  size_t end = 0;

  size_t size() const { return end - begin; }
  bool Contains(const DenseRange& other) const { return begin <= other.begin && other.end <= end; }
};

// The record of the slots in a DenseState whose buckets are updated share by share. A share is a
// run of elements; the rule is elementwise. The slots of each bucket are
//   fresh     in one run of elements: of the bucket's version;
//   kept      in all others: of an earlier version, the last for which this process had all slots;
//   prepared  for one run, stored beside the state: of the version after the bucket's, until it
//             is known whether the bucket gets that version. An unfinished update changes nothing.
// Every process has the whole array; its kept slots of other shares replace those that are lost
// when their member dies.
//
// Packed slots are the slots of a range, in pieces split at block boundaries. Each piece holds all
// its arrays one after another, so every element has the same number of floats.
//
// Used by the one thread that writes the state.
class SlotShares {
 public:
  // REQUIRES: the rule is elementwise, and the state lies in the host's memory.
  SlotShares(const DenseLayout& layout, const UpdateRule& rule, DenseState& state);

  // Share `place` of `members` equal ones (the last may be short or empty), and the length
  // of the longest.
  DenseRange Share(size_t bucket, size_t members, size_t place) const;
  size_t ShareElements(size_t bucket, size_t members) const;
  // Floats per element of the bucket.
  size_t SlotsPerElement(size_t bucket) const;

  // Clear: the state is empty. SetWhole: the slots of all elements are of the bucket's version.
  void Clear();
  void SetWhole(size_t bucket);

  // Computes the update of the range with scale * gradient: writes the new weights to weights[0,
  // size) and prepares the slots.
  void Prepare(size_t bucket, const DenseRange& range, float scale, const float* gradient,
               float* weights);
  const std::vector<float>& prepared(size_t bucket) const { return records_[bucket].prepared; }
  // Called before the bucket gets the next version: the prepared slots become fresh, others kept.
  void Commit(size_t bucket);
  // Copy packed slots of a range out of the state and into it.
  void Pack(size_t bucket, const DenseRange& range, float* packed) const;
  void Unpack(size_t bucket, const DenseRange& range, const float* packed);

  // Describes what this process has of all buckets, as numbers to gather from all members when a
  // group has formed.
  std::vector<int64_t> Describe() const;
  // Where a run of a bucket's elements gets its slots from.
  struct Source {
    DenseRange range;
    size_t place = 0;
    // The version of the slots.
    int64_t version = 0;
  };
  // Returns the freshest source for each run, for the highest version of the bucket that any member
  // has. Ties go to an update that was made, then to the lowest place. `all` holds the members'
  // descriptions one after another. Empty if all members have all slots fresh. The same result on
  // all members.
  std::vector<Source> Sources(size_t bucket, size_t members, absl::Span<const int64_t> all) const;
  // This member's part of a source, packed. REQUIRES: source.place is this member, and `all`
  // describes what it has.
  std::vector<float> PackSource(size_t bucket, const Source& source) const;
  // Whether the state here already has it. Then it must not be written, because ranks may read it.
  bool Has(size_t bucket, const Source& source) const;

 private:
  struct Record {
    DenseRange fresh;
    int64_t kept = DenseState::kNone;
    DenseRange prepared_range;
    std::vector<float> prepared;
  };

  // Calls visit(block, first, count, packed) for each piece: elements [first, first + count) of the
  // block.
  template <typename Visit>
  void ForEachPiece(size_t bucket, const DenseRange& range, Visit visit) const;

  const DenseLayout& layout_;
  const UpdateRule& rule_;
  DenseState& state_;
  std::vector<Record> records_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_SLOT_SHARES_H_
