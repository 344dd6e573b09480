// Time as something that is passed in, so that tests can move it.
#ifndef PAWL_CLIENT_LIB_BASE_CLOCK_H_
#define PAWL_CLIENT_LIB_BASE_CLOCK_H_

#include <chrono>

namespace pawl {

// Time that never goes back and knows no date: leases, deadlines and figures are
// measured on it, so that a wall clock that is set changes nothing.
using MonotonicTime = std::chrono::steady_clock::time_point;
using MonotonicDuration = std::chrono::steady_clock::duration;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual MonotonicTime Now() const = 0;

  // The same, but it goes on while the machine is suspended (CLOCK_BOOTTIME): for leases, which run
  // out meanwhile. A time of one is never compared with a time of the other, and nothing can wait
  // for one of these.
  virtual MonotonicTime LeaseNow() const { return Now(); }

  // The machine's own clock; lives for the whole process.
  static const Clock& Real();
};

inline double Seconds(MonotonicDuration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_CLOCK_H_
