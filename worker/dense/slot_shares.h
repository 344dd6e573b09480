// Which of the slots of this process are worth something, where every process updates a share of
// each bucket alone.
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
//   fresh      of a run of elements: as of the bucket's version;
//   kept       of all others: as of an earlier version, the last at which this process had all of
//   them; prepared   of a run: as of the version after the bucket's, beside the state, until it is
//   known whether the bucket ever
//              gets that version. An update that is not finished anywhere has changed nothing.
// The array is whole on every process: what is kept of others' shares is what there is when they
// die.
//
// Packed slots are those of a range, piece by piece where blocks end, of each piece all arrays one
// after the other: as many floats for an element everywhere.
//
// For one thread, the one that writes the state.
class SlotShares {
 public:
  // REQUIRES: the rule is elementwise, and the state lies in the host's memory.
  SlotShares(const DenseLayout& layout, const UpdateRule& rule, DenseState& state);

  // Share `place` of `members` equal ones, the last of which may be short or empty; and how long
  // the longest is.
  DenseRange Share(size_t bucket, size_t members, size_t place) const;
  size_t ShareElements(size_t bucket, size_t members) const;
  // Floats for an element of the bucket.
  size_t SlotsPerElement(size_t bucket) const;

  // The state has nothing; the slots of all elements are as of the bucket's version.
  void Clear();
  void SetWhole(size_t bucket);

  // Makes the update of the range with scale * gradient: weights[0, size) are its new weights, its
  // slots are prepared.
  void Prepare(size_t bucket, const DenseRange& range, float scale, const float* gradient,
               float* weights);
  const std::vector<float>& prepared(size_t bucket) const { return records_[bucket].prepared; }
  // Before the bucket gets the next version: its slots are the prepared ones, and kept ones.
  void Commit(size_t bucket);
  // Packed slots of a range, out of the state and into it.
  void Pack(size_t bucket, const DenseRange& range, float* packed) const;
  void Unpack(size_t bucket, const DenseRange& range, const float* packed);

  // When a group has formed: what this process has of all buckets, as numbers to be gathered from
  // all members.
  std::vector<int64_t> Describe() const;
  // From where a run of a bucket's elements gets its slots.
  struct Source {
    DenseRange range;
    size_t place = 0;
    // As of which they are.
    int64_t version = 0;
  };
  // The freshest there are for each run, the bucket being at the highest version that a member has;
  // of equal ones those of an update that was made, and then of the lowest place. `all` are the
  // members' descriptions, one after the other. Nothing if all members have all fresh. The same
  // result on all members.
  std::vector<Source> Sources(size_t bucket, size_t members, absl::Span<const int64_t> all) const;
  // This member's part of it, packed. REQUIRES: source.place is this member, and `all` says what it
  // has.
  std::vector<float> Give(size_t bucket, const Source& source) const;
  // Whether the state here has it already: what ranks may be reading is not written.
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
