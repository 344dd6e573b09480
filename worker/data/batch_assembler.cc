#include "worker/data/batch_assembler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "absl/strings/str_cat.h"
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

absl::Status TooLarge(size_t samples, absl::string_view what, uint64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a batch of ", samples, " samples has more than ", limit, " ", what,
                   "; reduce batch_size or use more logical_workers"));
}

}  // namespace

BatchAssembler::BatchAssembler(const SampleStore& store, std::optional<KeyOrder> order)
    : store_(store), order_(order), seen_(store_.keys().size()) {}

absl::Status BatchAssembler::AssembleRange(SampleRange samples, Batch* batch) {
  range_.resize(samples.size());
  std::iota(range_.begin(), range_.end(), samples.begin);
  return Assemble(range_, batch);
}

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
  batch->field_count = shape.field_count;
  batch->labels.resize(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i + kPrefetchSamples < samples.size())
      __builtin_prefetch(&store_.labels[samples[i + kPrefetchSamples]]);
    batch->labels[i] = store_.labels[samples[i]];
  }
  AddNumerics(samples, batch);
  batch->field_begin.resize(samples.size() * shape.field_count + 1);
  if (store_.sample_begin.empty()) {
    AddFixed(samples, batch);
  } else {
    PAWL_RETURN_IF_ERROR(AddRagged(samples, batch));
  }
  if (++batch_number_ == 0) {  // wrapped around: old marks would look new
    std::fill(seen_.begin(), seen_.end(), Seen{0, 0});
    std::fill(slots_.begin(), slots_.end(), Slot{0, {0, 0}});
    batch_number_ = 1;
  }
  if (store_.interns()) {
    FindDistinct(batch);
  } else {
    HashDistinct(batch);
  }
  if (order_.has_value()) SortKeys(*order_, batch);
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

void BatchAssembler::AddFixed(absl::Span<const uint64_t> samples, Batch* batch) {
  const size_t fields = store_.shape.field_count;
  const size_t entries = samples.size() * fields;
  std::iota(batch->field_begin.begin(), batch->field_begin.end(), 0u);
  batch->entry_value.assign(entries, 1.0f);
  if (!store_.interns()) {
    batch_keys_.resize(entries);
    uint64_t* out = batch_keys_.data();
    for (size_t i = 0; i < samples.size() && fields > 0; ++i) {
      if (i + kPrefetchSamples < samples.size())
        __builtin_prefetch(&store_.entry_keys[samples[i + kPrefetchSamples] * fields]);
      out = std::copy_n(&store_.entry_keys[samples[i] * fields], fields, out);
    }
    return;
  }
  batch->entry_key.resize(entries);
  uint32_t* out = batch->entry_key.data();
  for (size_t i = 0; i < samples.size() && fields > 0; ++i) {
    if (i + kPrefetchSamples < samples.size())
      __builtin_prefetch(&store_.entries[samples[i + kPrefetchSamples] * fields]);
    out = std::copy_n(&store_.entries[samples[i] * fields], fields, out);
  }
}

absl::Status BatchAssembler::AddRagged(absl::Span<const uint64_t> samples, Batch* batch) {
  uint64_t entries = 0;
  for (const uint64_t sample : samples)
    entries += store_.sample_begin[sample + 1] - store_.sample_begin[sample];
  if (entries > kMaxBatchEntries) return TooLarge(samples.size(), "entries", kMaxBatchEntries);
  const uint64_t fields = store_.shape.field_count;
  const bool interns = store_.interns();
  (interns ? batch->entry_key.resize(entries) : batch_keys_.resize(entries));
  batch->entry_value.resize(entries);
  uint32_t* field_begin = batch->field_begin.data();
  uint64_t out = 0;
  for (const uint64_t sample : samples) {
    const uint64_t begin = store_.sample_begin[sample];
    const uint64_t count = store_.sample_begin[sample + 1] - begin;
    for (uint64_t field = 0; field < fields; ++field) {
      *field_begin++ = static_cast<uint32_t>(out + std::min(field, count));
    }
    if (interns) {
      std::copy_n(store_.entries.data() + begin, count, batch->entry_key.data() + out);
    } else {
      std::copy_n(store_.entry_keys.data() + begin, count, batch_keys_.data() + out);
    }
    for (uint64_t i = 0; i < count; ++i)
      batch->entry_value[out + i] = store_.weights.empty() ? 1.0f : store_.weights[begin + i];
    out += count;
  }
  *field_begin = static_cast<uint32_t>(out);
  return absl::OkStatus();
}

void BatchAssembler::FindDistinct(Batch* batch) {
  std::vector<uint32_t>& numbers = batch->entry_key;
  if (distinct_.size() < numbers.size()) distinct_.resize(numbers.size());
  // Without branches, because whether a key is new cannot be predicted.
  uint32_t count = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i + kPrefetchKeys < numbers.size())
      __builtin_prefetch(&seen_[numbers[i + kPrefetchKeys]], 1);
    Seen& seen = seen_[numbers[i]];
    const bool is_new = seen.batch != batch_number_;
    const uint32_t place = is_new ? count : seen.place;
    distinct_[count] = numbers[i];
    count += is_new;
    seen = {batch_number_, place};
    numbers[i] = place;
  }
  batch->keys.resize(count);
  for (uint32_t k = 0; k < count; ++k) batch->keys[k] = store_.keys()[distinct_[k]];
}

void BatchAssembler::HashDistinct(Batch* batch) {
  const size_t entries = batch_keys_.size();
  // At most half full.
  if (slots_.size() < 2 * entries) slots_.assign(std::bit_ceil(2 * entries), Slot{0, {0, 0}});
  const size_t mask = slots_.size() - 1;
  const auto home = [mask](uint64_t key) { return Mix64(key + 0x9e3779b97f4a7c15u) & mask; };
  batch->entry_key.resize(entries);
  batch->keys.resize(entries);
  uint32_t count = 0;
  for (size_t i = 0; i < entries; ++i) {
    if (i + kPrefetchKeys < entries)
      __builtin_prefetch(&slots_[home(batch_keys_[i + kPrefetchKeys])], 1);
    const uint64_t key = batch_keys_[i];
    size_t at = home(key);
    while (slots_[at].seen.batch == batch_number_ && slots_[at].key != key) at = (at + 1) & mask;
    Slot& slot = slots_[at];
    if (slot.seen.batch != batch_number_) {
      batch->keys[count] = key;
      slot = {key, {batch_number_, count++}};
    }
    batch->entry_key[i] = slot.seen.place;
  }
  batch->keys.resize(count);
}

void BatchAssembler::SortKeys(const KeyOrder& order, Batch* batch) {
  unsorted_.swap(batch->keys);
  batch->keys.resize(unsorted_.size());
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
    batch->keys[moved_[k]] = unsorted_[k];
  }
  for (uint32_t& key : batch->entry_key) key = moved_[key];
}

}  // namespace pawl
