#include "worker/data/batch.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

absl::Status WrongSize(absl::string_view what, size_t expected, size_t actual) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": must have ", expected, " elements, has ", actual));
}

absl::Status CheckFieldSet(const Batch& batch, const FieldLayout::FieldSet& expected,
                           const FieldSet& set) {
  if (set.key_set != expected.key_set || set.field_count != expected.fields.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch.field_sets: one has ", set.field_count, " fields and key set ", set.key_set,
        ", but the model expects ", expected.fields.size(), " and ", expected.key_set));
  }
  const std::vector<uint32_t>& begin = set.field_begin;
  const size_t fields = size_t{batch.samples} * set.field_count;
  // Without fields the list may be omitted.
  if (begin.size() != fields + 1 && !(begin.empty() && fields == 0)) {
    return WrongSize("batch.field_begin", fields + 1, begin.size());
  }
  if (set.entry_value.size() != set.entry_key.size()) {
    return WrongSize("batch.entry_value", set.entry_key.size(), set.entry_value.size());
  }
  if (!begin.empty() && (begin.front() != 0 || begin.back() != set.entry_key.size())) {
    return absl::InvalidArgumentError("batch.field_begin: must go from 0 to the number of entries");
  }
  for (size_t i = 0; i < fields; ++i) {
    if (begin[i] > begin[i + 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch.field_begin[", i + 1, "]: must not be less than the one before"));
    }
  }
  const size_t keys = batch.keys[set.key_set].size();
  for (size_t e = 0; e < set.entry_key.size(); ++e) {
    if (set.entry_key[e] >= keys) {
      return absl::InvalidArgumentError(absl::StrCat("batch.entry_key[", e, "]: must be less than ",
                                                     keys, ", is ", set.entry_key[e]));
    }
  }
  return absl::OkStatus();
}

void SliceFieldSet(const FieldSet& set, SampleRange samples, FieldSet* part) {
  part->key_set = set.key_set;
  part->field_count = set.field_count;
  part->field_begin.clear();
  part->entry_key.clear();
  part->entry_value.clear();
  if (set.field_begin.empty()) return;
  const size_t first_field = samples.begin * set.field_count;
  const size_t end_field = samples.end * set.field_count;
  const uint32_t first = set.field_begin[first_field];
  const uint32_t end = set.field_begin[end_field];
  for (size_t i = first_field; i <= end_field; ++i)
    part->field_begin.push_back(set.field_begin[i] - first);
  part->entry_key.assign(set.entry_key.begin() + first, set.entry_key.begin() + end);
  part->entry_value.assign(set.entry_value.begin() + first, set.entry_value.begin() + end);
}

// The rows of a matrix with `width` columns.
void SliceRows(const std::vector<float>& rows, SampleRange samples, size_t width,
               std::vector<float>* part) {
  part->assign(rows.begin() + static_cast<std::ptrdiff_t>(samples.begin * width),
               rows.begin() + static_cast<std::ptrdiff_t>(samples.end * width));
}

}  // namespace

absl::Status CheckBatch(const Batch& batch, const DataShape& shape, const FieldLayout& layout) {
  const size_t samples = batch.samples;
  if (batch.numeric_count != shape.numeric_count || batch.label_count != shape.label_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch: has ", batch.numeric_count, " numeric inputs and ", batch.label_count,
        " labels, but the model expects ", shape.numeric_count, " and ", shape.label_count));
  }
  if (batch.labels.size() != samples * batch.label_count)
    return WrongSize("batch.labels", samples * batch.label_count, batch.labels.size());
  if (!batch.weights.empty() && batch.weights.size() != samples)
    return WrongSize("batch.weights", samples, batch.weights.size());
  if (batch.numerics.size() != samples * batch.numeric_count) {
    return WrongSize("batch.numerics", samples * batch.numeric_count, batch.numerics.size());
  }
  if (batch.keys.size() != layout.key_sets.size())
    return WrongSize("batch.keys", layout.key_sets.size(), batch.keys.size());
  if (batch.field_sets.size() != layout.field_sets.size())
    return WrongSize("batch.field_sets", layout.field_sets.size(), batch.field_sets.size());
  for (size_t i = 0; i < batch.field_sets.size(); ++i)
    PAWL_RETURN_IF_ERROR(CheckFieldSet(batch, layout.field_sets[i], batch.field_sets[i]));
  return absl::OkStatus();
}

void SliceBatch(const Batch& batch, SampleRange samples, Batch* part) {
  part->samples = static_cast<uint32_t>(samples.size());
  part->numeric_count = batch.numeric_count;
  part->label_count = batch.label_count;
  SliceRows(batch.labels, samples, batch.label_count, &part->labels);
  part->weights.clear();
  if (!batch.weights.empty()) SliceRows(batch.weights, samples, 1, &part->weights);
  SliceRows(batch.numerics, samples, batch.numeric_count, &part->numerics);
  part->keys = batch.keys;
  part->field_sets.resize(batch.field_sets.size());
  for (size_t i = 0; i < batch.field_sets.size(); ++i)
    SliceFieldSet(batch.field_sets[i], samples, &part->field_sets[i]);
}

}  // namespace pawl
