// Tells how scarce the machine's processors are.
#ifndef PAWL_SERVER_THREADS_PROCESSOR_PRESSURE_H_
#define PAWL_SERVER_THREADS_PROCESSOR_PRESSURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// Reads Linux's pressure stall information (https://docs.kernel.org/accounting/psi.html).
// Thread-safe.
class ProcessorPressure {
 public:
  // The clock outlives this.
  explicit ProcessorPressure(const Clock& clock, std::string file = "/proc/pressure/cpu")
      : clock_(clock), file_(std::move(file)) {}

  // The share of the time between the last two readings, at least kInterval apart, in which a
  // thread of any process waited for a processor. 0 before two readings, and if the kernel reports
  // none.
  double Share();

 private:
  static constexpr std::chrono::milliseconds kInterval{100};

  const Clock& clock_;
  const std::string file_;

  Mutex mu_;
  std::optional<MonotonicTime> read_at_ PAWL_GUARDED_BY(mu_);
  // The time waited since the machine started, if it is known.
  std::optional<int64_t> waited_us_ PAWL_GUARDED_BY(mu_);
  double share_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_THREADS_PROCESSOR_PRESSURE_H_
