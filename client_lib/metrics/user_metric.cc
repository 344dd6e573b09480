#include "client_lib/metrics/user_metric.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {

absl::Status CheckUserMetric(absl::string_view name, double value) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' ||
           c == '-';
  };
  if (name.empty() || name.size() > kMaxMetricNameBytes ||
      !std::all_of(name.begin(), name.end(), is_allowed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the metric name '", BoundedText(std::string(name), kMaxMetricNameBytes),
                     "' must have 1 to ", kMaxMetricNameBytes, " letters, digits and '_./-'"));
  }
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric '", name, "' is ", value, "; metrics must be finite"));
  }
  return absl::OkStatus();
}

}  // namespace pawl
