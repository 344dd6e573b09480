// Time as an interface, so that tests can control it.
#ifndef PAWL_CLIENT_LIB_BASE_CLOCK_H_
#define PAWL_CLIENT_LIB_BASE_CLOCK_H_

#include <chrono>

namespace pawl {

// Time that never goes back and has no date. Leases, deadlines and measurements use it, so setting
// the wall clock does not affect them.
using MonotonicTime = std::chrono::steady_clock::time_point;
using MonotonicDuration = std::chrono::steady_clock::duration;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual MonotonicTime Now() const = 0;

  // Like Now, but advances while the machine is suspended (CLOCK_BOOTTIME), as leases do. Times of
  // the two clocks must not be compared, and no wait accepts a LeaseNow time.
  virtual MonotonicTime LeaseNow() const { return Now(); }

  // The machine's clock; never destroyed.
  static const Clock& Real();
};

inline double Seconds(MonotonicDuration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_CLOCK_H_
