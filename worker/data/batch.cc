#include "worker/data/batch.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pawl {
namespace {

absl::Status WrongSize(absl::string_view what, size_t expected, size_t actual) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": must have ", expected, " elements, has ", actual));
}

}  // namespace

absl::Status CheckBatch(const Batch& batch, const DataShape& shape) {
  const size_t samples = batch.samples;
  if (batch.numeric_count != shape.numeric_count || batch.field_count != shape.field_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch: has ", batch.numeric_count, " numeric inputs and ", batch.field_count,
        " fields, but the model expects ", shape.numeric_count, " and ", shape.field_count));
  }
  if (batch.labels.size() != samples)
    return WrongSize("batch.labels", samples, batch.labels.size());
  if (batch.numerics.size() != samples * batch.numeric_count) {
    return WrongSize("batch.numerics", samples * batch.numeric_count, batch.numerics.size());
  }
  const std::vector<uint32_t>& begin = batch.field_begin;
  const size_t fields = samples * batch.field_count;
  // Without fields the list may be omitted.
  if (begin.size() != fields + 1 && !(begin.empty() && fields == 0)) {
    return WrongSize("batch.field_begin", fields + 1, begin.size());
  }
  if (batch.entry_value.size() != batch.entry_key.size()) {
    return WrongSize("batch.entry_value", batch.entry_key.size(), batch.entry_value.size());
  }
  if (!begin.empty() && (begin.front() != 0 || begin.back() != batch.entry_key.size())) {
    return absl::InvalidArgumentError("batch.field_begin: must go from 0 to the number of entries");
  }
  for (size_t i = 0; i < fields; ++i) {
    if (begin[i] > begin[i + 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch.field_begin[", i + 1, "]: must not be less than the one before"));
    }
  }
  const size_t keys = batch.keys.size();
  for (size_t e = 0; e < batch.entry_key.size(); ++e) {
    if (batch.entry_key[e] >= keys) {
      return absl::InvalidArgumentError(absl::StrCat("batch.entry_key[", e, "]: must be less than ",
                                                     keys, ", is ", batch.entry_key[e]));
    }
  }
  return absl::OkStatus();
}

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
