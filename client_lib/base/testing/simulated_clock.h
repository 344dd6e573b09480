// A clock that only tests advance.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_SIMULATED_CLOCK_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_SIMULATED_CLOCK_H_

#include <atomic>

#include "client_lib/base/clock.h"

namespace pawl {

// Thread-safe.
class SimulatedClock final : public Clock {
 public:
  MonotonicTime Now() const override { return MonotonicTime(MonotonicDuration(ticks_.load())); }
  MonotonicTime LeaseNow() const override { return Now() + MonotonicDuration(suspended_.load()); }
  void Advance(MonotonicDuration by) { ticks_ += by.count(); }
  // Suspends the machine: only leases notice.
  void Suspend(MonotonicDuration duration) { suspended_ += duration.count(); }

 private:
  std::atomic<MonotonicDuration::rep> suspended_{0};
  std::atomic<MonotonicDuration::rep> ticks_{1};
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_SIMULATED_CLOCK_H_
