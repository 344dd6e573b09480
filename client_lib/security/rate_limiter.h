// Limits how often something is logged.
#ifndef PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_
#define PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_

#include <chrono>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// At most so many lines per second are logged, however many calls are refused.
inline constexpr int kMaxRefusalsLoggedPerSecond = 10;

// Allows `per_second` events in each second. Thread-safe.
class RateLimiter {
 public:
  explicit RateLimiter(int per_second) : per_second_(per_second) {}

  bool Allows(MonotonicTime now) {
    MutexLock lock(mu_);
    if (now >= second_ends_) {
      second_ends_ = now + std::chrono::seconds(1);
      used_ = 0;
    }
    return used_++ < per_second_;
  }

 private:
  const int per_second_;
  Mutex mu_;
  MonotonicTime second_ends_ PAWL_GUARDED_BY(mu_);
  int used_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_
