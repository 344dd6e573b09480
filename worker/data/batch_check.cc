#include "worker/data/batch_check.h"

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

}  // namespace pawl
