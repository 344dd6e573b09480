#include "worker/dense/slot_shares.h"

#include <algorithm>

namespace pawl {
namespace {

// The fields of a bucket in Describe.
enum Field : size_t {
  kVersion,
  kFreshBegin,
  kFreshEnd,
  kKept,
  kPreparedBegin,
  kPreparedEnd,
  kFields
};

DenseRange RangeAt(const int64_t* field) {
  return {.begin = static_cast<size_t>(field[0]), .end = static_cast<size_t>(field[1])};
}

}  // namespace

SlotShares::SlotShares(const DenseLayout& layout, const UpdateRule& rule, DenseState& state)
    : layout_(layout), rule_(rule), state_(state), records_(layout.buckets().size()) {}

size_t SlotShares::ShareElements(size_t bucket, size_t members) const {
  return (layout_.buckets()[bucket].count + members - 1) / members;
}

DenseRange SlotShares::Share(size_t bucket, size_t members, size_t place) const {
  const size_t count = layout_.buckets()[bucket].count;
  const size_t share = ShareElements(bucket, members);
  return {.begin = std::min(count, place * share), .end = std::min(count, (place + 1) * share)};
}

size_t SlotShares::SlotsPerElement(size_t bucket) const {
  // An elementwise rule has whole arrays.
  return layout_.buckets()[bucket].slots_count / layout_.buckets()[bucket].count;
}

void SlotShares::Clear() { records_.assign(records_.size(), Record()); }

void SlotShares::SetWhole(size_t bucket) {
  records_[bucket] = Record();
  records_[bucket].fresh.end = layout_.buckets()[bucket].count;
}

template <typename Visit>
void SlotShares::ForEachPiece(size_t bucket, const DenseRange& range, Visit visit) const {
  const DenseBucket& all = layout_.buckets()[bucket];
  size_t packed = 0;
  for (size_t i = all.first_block; i < all.end_block; ++i) {
    const DenseBlock& block = layout_.blocks()[i];
    const size_t block_begin = block.begin - all.begin;
    const size_t begin = std::max(range.begin, block_begin);
    const size_t end = std::min(range.end, block_begin + block.count);
    if (begin >= end) continue;
    visit(block, begin - block_begin, end - begin, packed);
    packed += (end - begin) * SlotsPerElement(bucket);
  }
}

void SlotShares::Pack(size_t bucket, const DenseRange& range, float* packed) const {
  const size_t slots_begin = layout_.buckets()[bucket].slots_begin;
  ForEachPiece(bucket, range, [&](const DenseBlock& block, size_t first, size_t count, size_t at) {
    const float* const slots = state_.slots(bucket) + (block.slots_begin - slots_begin);
    for (size_t array = 0; array < SlotsPerElement(bucket); ++array) {
      std::copy_n(slots + array * block.count + first, count, packed + at + array * count);
    }
  });
}

void SlotShares::Unpack(size_t bucket, const DenseRange& range, const float* packed) {
  const size_t slots_begin = layout_.buckets()[bucket].slots_begin;
  ForEachPiece(bucket, range, [&](const DenseBlock& block, size_t first, size_t count, size_t at) {
    float* const slots = state_.slots(bucket) + (block.slots_begin - slots_begin);
    for (size_t array = 0; array < SlotsPerElement(bucket); ++array) {
      std::copy_n(packed + at + array * count, count, slots + array * block.count + first);
    }
  });
}

void SlotShares::Prepare(size_t bucket, const DenseRange& range, float scale, const float* gradient,
                         float* weights) {
  const DenseBucket& all = layout_.buckets()[bucket];
  const UpdatePosition position = state_.PositionOf(bucket);
  Record& record = records_[bucket];
  record.prepared_range = range;
  record.prepared.resize(range.size() * SlotsPerElement(bucket));
  Pack(bucket, range, record.prepared.data());
  std::copy_n(state_.weights(bucket, position.step) + range.begin, range.size(), weights);
  ForEachPiece(bucket, range, [&](const DenseBlock& block, size_t first, size_t count, size_t at) {
    // For an elementwise rule a piece of a block is a row of its own.
    const size_t offset = block.begin - all.begin + first - range.begin;
    rule_.Apply(position, scale, gradient + offset, count, 0, count, weights + offset,
                record.prepared.data() + at);
  });
}

void SlotShares::Commit(size_t bucket) {
  Record& record = records_[bucket];
  // Other shares' slots stay as they are; those that were fresh until now become retained.
  const DenseRange all = {.begin = 0, .end = layout_.buckets()[bucket].count};
  if (record.fresh.Contains(all))
    record.kept = static_cast<int64_t>(state_.PositionOf(bucket).step);
  Unpack(bucket, record.prepared_range, record.prepared.data());
  record.fresh = record.prepared_range;
  record.prepared_range = DenseRange();
}

std::vector<int64_t> SlotShares::Describe() const {
  const std::vector<int64_t> versions = state_.versions();
  std::vector<int64_t> numbers;
  for (size_t b = 0; b < records_.size(); ++b) {
    const Record& record = records_[b];
    numbers.push_back(versions[b]);
    for (const size_t end : {record.fresh.begin, record.fresh.end})
      numbers.push_back(static_cast<int64_t>(end));
    numbers.push_back(record.kept);
    for (const size_t end : {record.prepared_range.begin, record.prepared_range.end}) {
      numbers.push_back(static_cast<int64_t>(end));
    }
  }
  return numbers;
}

std::vector<SlotShares::Source> SlotShares::Sources(size_t bucket, size_t members,
                                                    absl::Span<const int64_t> all) const {
  const DenseRange whole = {.begin = 0, .end = layout_.buckets()[bucket].count};
  const auto of = [&](size_t place) {
    return all.data() + (place * records_.size() + bucket) * kFields;
  };
  int64_t newest = DenseState::kNone;
  for (size_t p = 0; p < members; ++p) newest = std::max(newest, of(p)[kVersion]);

  bool is_everywhere = true;
  struct Offer : Source {
    bool is_prepared = false;
  };
  std::vector<Offer> offers;
  std::vector<size_t> ends = {whole.begin, whole.end};
  const auto offer = [&](size_t place, const DenseRange& range, int64_t version,
                         bool is_prepared = false) {
    if (range.size() == 0) return;
    offers.push_back({{.range = range, .place = place, .version = version}, is_prepared});
    ends.insert(ends.end(), {range.begin, range.end});
  };
  for (size_t p = 0; p < members; ++p) {
    const int64_t* const has = of(p);
    const DenseRange fresh = RangeAt(has + kFreshBegin);
    is_everywhere = is_everywhere && has[kVersion] == newest && fresh.Contains(whole);
    if (has[kVersion] == DenseState::kNone) continue;
    // They were prepared for a version that no member has, so their update was not made.
    if (has[kVersion] + 1 == newest)
      offer(p, RangeAt(has + kPreparedBegin), newest, /*is_prepared=*/true);
    offer(p, fresh, has[kVersion]);
    if (has[kKept] != DenseState::kNone) offer(p, whole, has[kKept]);
  }
  if (is_everywhere || layout_.buckets()[bucket].slots_count == 0) return {};

  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<Source> sources;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const DenseRange range = {.begin = ends[i], .end = ends[i + 1]};
    // Prepared slots name a version but not their update. Slots of an update that was made are
    // certain to belong to it.
    const auto is_better = [](const Offer& one, const Offer& other) {
      if (one.version != other.version) return one.version > other.version;
      return other.is_prepared && !one.is_prepared;
    };
    const Offer* best = nullptr;
    for (const Offer& each : offers) {
      if (each.range.Contains(range) && (best == nullptr || is_better(each, *best))) best = &each;
    }
    // A member that has a version of the bucket has some version of all its slots.
    if (best == nullptr) continue;
    sources.push_back({.range = range, .place = best->place, .version = best->version});
  }
  return sources;
}

std::vector<float> SlotShares::PackSource(size_t bucket, const Source& source) const {
  const Record& record = records_[bucket];
  std::vector<float> packed(source.range.size() * SlotsPerElement(bucket));
  const int64_t version = state_.versions()[bucket];
  if (source.version <= version) {
    Pack(bucket, source.range, packed.data());
    return packed;
  }
  // A part consists of other runs of memory than the whole.
  size_t at = 0;
  ForEachPiece(bucket, record.prepared_range,
               [&](const DenseBlock& block, size_t first, size_t count, size_t piece) {
                 const size_t begin = block.begin - layout_.buckets()[bucket].begin + first;
                 const size_t from = std::max(begin, source.range.begin);
                 const size_t to = std::min(begin + count, source.range.end);
                 if (from >= to) return;
                 for (size_t array = 0; array < SlotsPerElement(bucket); ++array, at += to - from) {
                   std::copy_n(record.prepared.data() + piece + array * count + (from - begin),
                               to - from, packed.data() + at);
                 }
               });
  return packed;
}

bool SlotShares::Has(size_t bucket, const Source& source) const {
  return state_.versions()[bucket] == source.version &&
         records_[bucket].fresh.Contains(source.range);
}

}  // namespace pawl
