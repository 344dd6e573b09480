#include "worker/data/batch_assembler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client_lib/base/compiler.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Samples are scattered in memory, so this many are prefetched.
constexpr size_t kPrefetchSamples = 16;
constexpr size_t kPrefetchKeys = 32;

constexpr std::array<float, 256> PixelValues() {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i) / 255.0f;
  return values;
}

template <typename T>
void PrefetchRange(const T* begin, size_t count) {
  constexpr uintptr_t kLine = 64;
  const auto end = reinterpret_cast<uintptr_t>(begin + count);
  for (auto line = reinterpret_cast<uintptr_t>(begin) & ~(kLine - 1); line < end; line += kLine)
    Prefetch(reinterpret_cast<const void*>(line));
}

absl::Status TooLarge(size_t samples, absl::string_view what, uint64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a batch of ", samples, " samples has more than ", limit, " ", what,
                   "; reduce batch_size or use more logical_workers"));
}

}  // namespace

BatchAssembler::BatchAssembler(const SampleStore& store, FieldLookup lookup)
    : store_(store),
      lookup_(std::move(lookup)),
      seen_(store_.keys().size()),
      set_keys_(lookup_.layout.field_sets.size()) {}

absl::Status BatchAssembler::Assemble(absl::Span<const uint64_t> samples, Batch* batch) {
  const DataShape& shape = store_.shape;
  if (samples.size() * uint64_t{shape.field_count} > kMaxBatchEntries) {
    return TooLarge(samples.size(), "(sample, field) pairs", kMaxBatchEntries);
  }
  if (samples.size() * uint64_t{shape.numeric_count} > kMaxBatchNumerics) {
    return TooLarge(samples.size(), "numbers", kMaxBatchNumerics);
  }
  batch->samples = static_cast<uint32_t>(samples.size());
  batch->numeric_count = shape.numeric_count;
  batch->label_count = shape.label_count;
  batch->labels.resize(samples.size() * shape.label_count);
  float* label = batch->labels.data();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i + kPrefetchSamples < samples.size())
      Prefetch(&store_.labels[samples[i + kPrefetchSamples] * shape.label_count]);
    label = std::copy_n(&store_.labels[samples[i] * shape.label_count], shape.label_count, label);
  }
  batch->weights.clear();
  if (!store_.sample_weights.empty()) {
    for (const uint64_t sample : samples) batch->weights.push_back(store_.sample_weights[sample]);
  }
  AddNumerics(samples, batch);
  const FieldLayout& layout = lookup_.layout;
  batch->field_sets.resize(layout.field_sets.size());
  for (size_t i = 0; i < layout.field_sets.size(); ++i) {
    FieldSet* const set = &batch->field_sets[i];
    set->key_set = layout.field_sets[i].key_set;
    set->field_count = static_cast<uint32_t>(layout.field_sets[i].fields.size());
    set->field_begin.resize(samples.size() * set->field_count + 1);
    if (!layout.is_single() || !store_.field_counts.empty()) {
      PAWL_RETURN_IF_ERROR(AddChosen(samples, layout.field_sets[i], set, &set_keys_[i]));
    } else if (store_.sample_begin.empty()) {
      AddFixed(samples, set, &set_keys_[i]);
    } else {
      PAWL_RETURN_IF_ERROR(AddRagged(samples, set, &set_keys_[i]));
    }
  }
  batch->keys.resize(layout.key_sets.size());
  for (size_t key_set = 0; key_set < layout.key_sets.size(); ++key_set) {
    std::vector<uint64_t>* const keys = &batch->keys[key_set];
    keys->clear();
    StartKeySet();
    if (!store_.interns()) {
      size_t entries = 0;
      for (size_t i = 0; i < set_keys_.size(); ++i)
        entries += layout.field_sets[i].key_set == key_set ? set_keys_[i].size() : 0;
      ReserveSlots(entries);
    }
    for (size_t i = 0; i < layout.field_sets.size(); ++i) {
      if (layout.field_sets[i].key_set != key_set) continue;
      if (store_.interns()) {
        FindDistinct(&batch->field_sets[i], keys);
      } else {
        HashDistinct(set_keys_[i], &batch->field_sets[i], keys);
      }
    }
    if (!lookup_.orders.empty()) SortKeys(lookup_.orders[key_set], key_set, batch);
  }
  return absl::OkStatus();
}

void BatchAssembler::AddNumerics(absl::Span<const uint64_t> samples, Batch* batch) const {
  const size_t count = store_.shape.numeric_count;
  batch->numerics.resize(samples.size() * count);
  if (count == 0) return;
  float* out = batch->numerics.data();
  if (store_.pixels.empty()) {
    for (const uint64_t sample : samples)
      out = std::copy_n(&store_.numerics[sample * count], count, out);
    return;
  }
  static constexpr std::array<float, 256> kPixelValues = PixelValues();
  for (const uint64_t sample : samples) {
    const uint8_t* const pixels = &store_.pixels[sample * count];
    out = std::transform(pixels, pixels + count, out,
                         [](uint8_t pixel) { return kPixelValues[pixel]; });
  }
}

void BatchAssembler::PrefetchEntries(absl::Span<const uint64_t> samples, size_t i) const {
  if (i >= samples.size()) return;
  const uint64_t fields = store_.shape.field_count;
  uint64_t begin = samples[i] * fields, count = fields;
  if (!store_.sample_begin.empty()) {
    begin = store_.sample_begin[samples[i]];
    count = store_.sample_begin[samples[i] + 1] - begin;
  }
  if (store_.interns()) {
    PrefetchRange(store_.entries.data() + begin, count);
  } else {
    PrefetchRange(store_.entry_keys.data() + begin, count);
  }
}

void BatchAssembler::AddFixed(absl::Span<const uint64_t> samples, FieldSet* set,
                              std::vector<uint64_t>* set_keys) {
  const size_t fields = store_.shape.field_count;
  const size_t entries = samples.size() * fields;
  std::iota(set->field_begin.begin(), set->field_begin.end(), 0u);
  set->entry_value.assign(entries, 1.0f);
  if (!store_.interns()) {
    set_keys->resize(entries);
    uint64_t* out = set_keys->data();
    for (size_t i = 0; i < samples.size() && fields > 0; ++i) {
      PrefetchEntries(samples, i + kPrefetchSamples);
      out = std::copy_n(&store_.entry_keys[samples[i] * fields], fields, out);
    }
    return;
  }
  set->entry_key.resize(entries);
  uint32_t* out = set->entry_key.data();
  for (size_t i = 0; i < samples.size() && fields > 0; ++i) {
    PrefetchEntries(samples, i + kPrefetchSamples);
    out = std::copy_n(&store_.entries[samples[i] * fields], fields, out);
  }
}

absl::Status BatchAssembler::AddRagged(absl::Span<const uint64_t> samples, FieldSet* set,
                                       std::vector<uint64_t>* set_keys) {
  uint64_t entries = 0;
  for (const uint64_t sample : samples)
    entries += store_.sample_begin[sample + 1] - store_.sample_begin[sample];
  if (entries > kMaxBatchEntries) return TooLarge(samples.size(), "entries", kMaxBatchEntries);
  const uint64_t fields = store_.shape.field_count;
  const bool interns = store_.interns();
  (interns ? set->entry_key.resize(entries) : set_keys->resize(entries));
  set->entry_value.resize(entries);
  uint32_t* field_begin = set->field_begin.data();
  uint64_t out = 0;
  for (size_t s = 0; s < samples.size(); ++s) {
    PrefetchEntries(samples, s + kPrefetchSamples);
    const uint64_t begin = store_.sample_begin[samples[s]];
    const uint64_t count = store_.sample_begin[samples[s] + 1] - begin;
    for (uint64_t field = 0; field < fields; ++field) {
      *field_begin++ = static_cast<uint32_t>(out + std::min(field, count));
    }
    if (interns) {
      std::copy_n(store_.entries.data() + begin, count, set->entry_key.data() + out);
    } else {
      std::copy_n(store_.entry_keys.data() + begin, count, set_keys->data() + out);
    }
    for (uint64_t i = 0; i < count; ++i)
      set->entry_value[out + i] = store_.weights.empty() ? 1.0f : store_.weights[begin + i];
    out += count;
  }
  *field_begin = static_cast<uint32_t>(out);
  return absl::OkStatus();
}

absl::Status BatchAssembler::AddChosen(absl::Span<const uint64_t> samples,
                                       const FieldLayout::FieldSet& layout, FieldSet* set,
                                       std::vector<uint64_t>* set_keys) {
  const bool interns = store_.interns();
  set->entry_key.clear();
  set->entry_value.clear();
  set_keys->clear();
  uint32_t* field_begin = set->field_begin.data();
  *field_begin++ = 0;
  const size_t fields = store_.shape.field_count;
  for (size_t s = 0; s < samples.size(); ++s) {
    const uint64_t sample = samples[s];
    PrefetchEntries(samples, s + kPrefetchSamples);
    // With field_counts: the first entry of field `at`, which is not summed up again for each
    // field.
    uint32_t at = 0;
    uint64_t first = store_.field_counts.empty() ? 0 : store_.sample_begin[sample];
    for (const uint32_t field : layout.fields) {
      SampleRange entries{0, 0};
      if (store_.field_counts.empty()) {
        entries = store_.EntriesOf(sample, field);
      } else {
        const uint16_t* const counts = &store_.field_counts[sample * fields];
        for (; at < field; ++at) first += counts[at];
        entries = {first, first + counts[field]};
      }
      const float share = layout.pooling == FieldPooling::kMean && entries.size() > 1
                              ? 1.0f / static_cast<float>(entries.size())
                              : 1.0f;
      for (uint64_t entry = entries.begin; entry < entries.end; ++entry) {
        set->entry_value.push_back((store_.weights.empty() ? 1.0f : store_.weights[entry]) * share);
      }
      if (interns) {
        set->entry_key.insert(set->entry_key.end(),
                              store_.entries.begin() + static_cast<ptrdiff_t>(entries.begin),
                              store_.entries.begin() + static_cast<ptrdiff_t>(entries.end));
      } else {
        set_keys->insert(set_keys->end(),
                         store_.entry_keys.begin() + static_cast<ptrdiff_t>(entries.begin),
                         store_.entry_keys.begin() + static_cast<ptrdiff_t>(entries.end));
      }
      *field_begin++ = static_cast<uint32_t>(set->entry_value.size());
    }
    if (set->entry_value.size() > kMaxBatchEntries)
      return TooLarge(samples.size(), "entries", kMaxBatchEntries);
  }
  return absl::OkStatus();
}

void BatchAssembler::StartKeySet() {
  if (++number_ != 0) return;
  // Wrapped around: old marks would look new.
  std::fill(seen_.begin(), seen_.end(), Seen{0, 0});
  std::fill(slots_.begin(), slots_.end(), Slot{0, {0, 0}});
  number_ = 1;
}

void BatchAssembler::FindDistinct(FieldSet* set, std::vector<uint64_t>* keys) {
  std::vector<uint32_t>& numbers = set->entry_key;
  if (distinct_.size() < numbers.size()) distinct_.resize(numbers.size());
  // Without branches, because whether a key is new cannot be predicted.
  const auto before = static_cast<uint32_t>(keys->size());
  uint32_t count = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i + kPrefetchKeys < numbers.size()) PrefetchForWriting(&seen_[numbers[i + kPrefetchKeys]]);
    Seen& seen = seen_[numbers[i]];
    const bool is_new = seen.batch != number_;
    const uint32_t place = is_new ? before + count : seen.place;
    distinct_[count] = numbers[i];
    count += is_new;
    seen = {number_, place};
    numbers[i] = place;
  }
  keys->resize(before + count);
  for (uint32_t k = 0; k < count; ++k) (*keys)[before + k] = store_.keys()[distinct_[k]];
}

void BatchAssembler::ReserveSlots(size_t entries) {
  // At most half full.
  if (slots_.size() < 2 * entries) slots_.assign(std::bit_ceil(2 * entries), Slot{0, {0, 0}});
}

void BatchAssembler::HashDistinct(const std::vector<uint64_t>& set_keys, FieldSet* set,
                                  std::vector<uint64_t>* keys) {
  const size_t entries = set_keys.size();
  const size_t mask = slots_.size() - 1;
  const auto home = [mask](uint64_t key) { return Mix64(key + 0x9e3779b97f4a7c15u) & mask; };
  auto count = static_cast<uint32_t>(keys->size());
  set->entry_key.resize(entries);
  keys->resize(count + entries);
  for (size_t i = 0; i < entries; ++i) {
    if (i + kPrefetchKeys < entries) PrefetchForWriting(&slots_[home(set_keys[i + kPrefetchKeys])]);
    const uint64_t key = set_keys[i];
    size_t at = home(key);
    while (slots_[at].seen.batch == number_ && slots_[at].key != key) at = (at + 1) & mask;
    Slot& slot = slots_[at];
    if (slot.seen.batch != number_) {
      (*keys)[count] = key;
      slot = {key, {number_, count++}};
    }
    set->entry_key[i] = slot.seen.place;
  }
  keys->resize(count);
}

void BatchAssembler::SortKeys(const KeyOrder& order, size_t key_set, Batch* batch) {
  std::vector<uint64_t>& keys = batch->keys[key_set];
  unsorted_.swap(keys);
  keys.resize(unsorted_.size());
  moved_.resize(unsorted_.size());
  next_in_partition_.assign(order.partitions, 0);
  for (size_t k = 0; k < unsorted_.size(); ++k) {
    moved_[k] = PartitionOf(order.table, unsorted_[k], order.partitions);
    ++next_in_partition_[moved_[k]];
  }
  std::exclusive_scan(next_in_partition_.begin(), next_in_partition_.end(),
                      next_in_partition_.begin(), 0u);
  for (size_t k = 0; k < unsorted_.size(); ++k) {
    moved_[k] = next_in_partition_[moved_[k]]++;
    keys[moved_[k]] = unsorted_[k];
  }
  for (FieldSet& set : batch->field_sets) {
    if (set.key_set != key_set) continue;
    for (uint32_t& key : set.entry_key) key = moved_[key];
  }
}

}  // namespace pawl
