// Measures TCP over loopback with iperf3, the Debian package, as two processes.
#ifndef PAWL_TESTS_PERF_IPERF_H_
#define PAWL_TESTS_PERF_IPERF_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// Returns the bytes per second received over one loopback TCP connection in `seconds`. NOT_FOUND if
// iperf3 is not installed. `folder` gets the logs.
absl::StatusOr<double> MeasureIperf(double seconds, const std::string& folder);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_IPERF_H_
