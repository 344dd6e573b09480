#include "worker/data/sample_store.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

template <typename T>
uint64_t Bytes(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

}  // namespace

uint64_t SampleStore::memory_bytes() const {
  constexpr uint64_t kSlotBytes = sizeof(std::pair<uint64_t, uint32_t>) + 1;  // plus a control byte
  return Bytes(labels) + Bytes(sample_weights) + Bytes(query_ids) + Bytes(numerics) +
         Bytes(pixels) + Bytes(entries) + Bytes(entry_keys) + Bytes(sample_begin) +
         Bytes(field_counts) + Bytes(weights) + Bytes(keys_) + numbers_.capacity() * kSlotBytes;
}

absl::Status SampleStore::CheckLimits(absl::string_view file) const {
  if (const uint64_t bytes = memory_bytes(); bytes > max_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file, ": its samples take ", bytes, " bytes of memory after ", size(),
                     " of them; the limit is ", max_bytes_,
                     "; split the file, or give the worker more memory (--max_data_bytes)"));
  }
  if (size() > kMaxSamples) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file, ": has more than ", kMaxSamples, " samples; split it"));
  }
  if (keys_.size() > kMaxDistinctKeys) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file, ": has more than ", kMaxDistinctKeys, " distinct keys"));
  }
  return absl::OkStatus();
}

void SampleStore::TruncateEntries(uint64_t count) {
  if (interns_) {
    entries.resize(count);
  } else {
    entry_keys.resize(count);
  }
  if (weights.size() > count) weights.resize(count);
}

SampleRange SampleStore::EntriesOf(uint64_t sample, uint32_t field) const {
  const uint64_t fields = shape.field_count;
  if (sample_begin.empty()) {
    const uint64_t entry = sample * fields + field;
    return {entry, entry + 1};
  }
  const uint64_t begin = sample_begin[sample];
  const uint64_t end = sample_begin[sample + 1];
  if (field_counts.empty()) {
    const uint64_t first = std::min(begin + field, end);
    return {first, field + 1 == fields ? end : std::min(first + 1, end)};
  }
  const uint16_t* const counts = &field_counts[sample * fields];
  const uint64_t first = std::accumulate(counts, counts + field, begin);
  return {first, first + counts[field]};
}

void SampleStore::Clear() {
  labels.clear();
  sample_weights.clear();
  query_ids.clear();
  numerics.clear();
  pixels.clear();
  entries.clear();
  entry_keys.clear();
  sample_begin.clear();
  field_counts.clear();
  weights.clear();
  keys_.clear();
  numbers_.clear();
}

uint64_t SampleStore::Fingerprint() const {
  uint32_t crc = Crc32c(0, &shape.label_count, sizeof(shape.label_count));
  const auto add = [&crc](const auto& values) {
    const uint64_t count = values.size();
    crc = Crc32c(crc, &count, sizeof(count));
    crc = Crc32c(crc, values.data(), count * sizeof(values[0]));
  };
  add(labels);
  add(sample_weights);
  add(query_ids);
  add(numerics);
  add(pixels);
  add(entries);
  add(entry_keys);
  add(sample_begin);
  add(field_counts);
  add(weights);
  add(keys_);
  return size() << 32 | crc;
}

void SampleStore::Finish() {
  numbers_ = {};
  labels.shrink_to_fit();
  sample_weights.shrink_to_fit();
  query_ids.shrink_to_fit();
  numerics.shrink_to_fit();
  pixels.shrink_to_fit();
  entries.shrink_to_fit();
  entry_keys.shrink_to_fit();
  sample_begin.shrink_to_fit();
  field_counts.shrink_to_fit();
  weights.shrink_to_fit();
  keys_.shrink_to_fit();
}

}  // namespace pawl
