#include "worker/model/spec_checks.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"

namespace pawl {
namespace {

// Beyond it an interaction of a few fields needs more memory than a step may have.
constexpr uint64_t kMaxInputs = uint64_t{1} << 20;

}  // namespace

absl::Status CheckEmbeddingDim(absl::string_view field, uint32_t dim) {
  if (dim >= 1 && dim <= kMaxEmbeddingDim) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": must be 1 to ", kMaxEmbeddingDim, ", is ", dim));
}

absl::Status CheckInitStddev(absl::string_view field, float stddev) {
  if (std::isfinite(stddev) && stddev >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": must be finite and not negative, is ", stddev));
}

absl::Status CheckLayerWidths(absl::string_view field,
                              const google::protobuf::RepeatedField<uint32_t>& widths) {
  if (widths.size() > kMaxHiddenLayers) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": must have at most ", kMaxHiddenLayers,
                                                   " layers, has ", widths.size()));
  }
  for (int i = 0; i < widths.size(); ++i) {
    if (widths[i] < 1 || widths[i] > kMaxLayerWidth) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "]: must be 1 to ", kMaxLayerWidth, ", is ", widths[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view field, uint32_t count, uint32_t limit) {
  if (count >= 1 && count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": must be 1 to ", limit, ", is ", count));
}

absl::Status CheckHasFields(absl::string_view model, uint32_t field_count) {
  if (field_count > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(model,
                   ": needs categorical fields, but the data has none; add some to data, or use "
                   "logistic_regression or mlp"));
}

absl::Status CheckInputWidth(absl::string_view model, uint64_t inputs) {
  if (inputs <= kMaxInputs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(model, ": the first layer would have ", inputs,
                                                 " inputs; at most ", kMaxInputs, " are possible"));
}

}  // namespace pawl
