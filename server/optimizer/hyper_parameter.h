// Refusals of impossible hyper-parameters, all in the same words.
#ifndef PAWL_SERVER_OPTIMIZER_HYPER_PARAMETER_H_
#define PAWL_SERVER_OPTIMIZER_HYPER_PARAMETER_H_

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pawl {

inline absl::Status ImpossibleHyperParameter(absl::string_view field, float value, absl::string_view range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", range));
}

inline absl::Status RequirePositive(absl::string_view field, float value) {
  if (std::isfinite(value) && value > 0.0f) return absl::OkStatus();
  return ImpossibleHyperParameter(field, value, "finite and above 0");
}

inline absl::Status RequireNotNegative(absl::string_view field, float value) {
  if (std::isfinite(value) && value >= 0.0f) return absl::OkStatus();
  return ImpossibleHyperParameter(field, value, "finite and at least 0");
}

// Of a moving average: how much of the old value stays.
inline absl::Status RequireDecay(absl::string_view field, float value) {
  if (value >= 0.0f && value < 1.0f) return absl::OkStatus();
  return ImpossibleHyperParameter(field, value, "at least 0 and below 1");
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_HYPER_PARAMETER_H_
