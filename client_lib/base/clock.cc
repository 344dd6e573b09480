#include "client_lib/base/clock.h"

#include <time.h>

#include <cstdlib>

namespace pawl {
namespace {

class RealClock final : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::steady_clock::now(); }
  MonotonicTime LeaseNow() const override {
    timespec now;
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) std::abort();
    return MonotonicTime(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  }
};

}  // namespace

const Clock& Clock::Real() {
  static const RealClock clock;
  return clock;
}

}  // namespace pawl
