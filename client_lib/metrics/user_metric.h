// Figures that programs of users report, such as a loss of their own.
#ifndef PAWL_CLIENT_LIB_METRICS_USER_METRIC_H_
#define PAWL_CLIENT_LIB_METRICS_USER_METRIC_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pawl {

inline constexpr size_t kMaxMetricNameBytes = 128;
// Different names in a job. The scheduler keeps the latest figure of each.
inline constexpr size_t kMaxMetricNames = 256;
// Figures in one message to the scheduler.
inline constexpr size_t kMaxMetricsInMessage = 1024;

// INVALID_ARGUMENT unless the name has 1 to kMaxMetricNameBytes letters, digits and "_./-", and the
// value is finite.
absl::Status CheckUserMetric(absl::string_view name, double value);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_METRICS_USER_METRIC_H_
