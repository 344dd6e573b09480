#include "worker/data/batch_slice.h"

#include <cstddef>
#include <cstdint>

namespace pawl {

void SliceBatch(const Batch& batch, SampleRange samples, Batch* part) {
  part->samples = static_cast<uint32_t>(samples.size());
  part->numeric_count = batch.numeric_count;
  part->field_count = batch.field_count;
  part->labels.assign(batch.labels.begin() + static_cast<std::ptrdiff_t>(samples.begin),
                      batch.labels.begin() + static_cast<std::ptrdiff_t>(samples.end));
  const auto numerics = batch.numerics.begin();
  part->numerics.assign(numerics + static_cast<std::ptrdiff_t>(samples.begin * batch.numeric_count),
                        numerics + static_cast<std::ptrdiff_t>(samples.end * batch.numeric_count));
  part->keys = batch.keys;
  part->field_begin.clear();
  part->entry_key.clear();
  part->entry_value.clear();
  if (batch.field_begin.empty()) return;
  const size_t first_field = samples.begin * batch.field_count;
  const size_t end_field = samples.end * batch.field_count;
  const uint32_t first = batch.field_begin[first_field];
  const uint32_t end = batch.field_begin[end_field];
  for (size_t i = first_field; i <= end_field; ++i)
    part->field_begin.push_back(batch.field_begin[i] - first);
  part->entry_key.assign(batch.entry_key.begin() + first, batch.entry_key.begin() + end);
  part->entry_value.assign(batch.entry_value.begin() + first, batch.entry_value.begin() + end);
}

}  // namespace pawl
