// Limits how often something is logged.
#ifndef PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_
#define PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/admission/token_bucket.h"

namespace pawl {

// So many lines per second are logged on average, however many calls are refused.
inline constexpr int kMaxRefusalsLoggedPerSecond = 10;

// Allows `per_second` events per second on average, and as many at once. Thread-safe.
class RateLimiter {
 public:
  explicit RateLimiter(int per_second) : bucket_(per_second, per_second, MonotonicTime()) {}

  bool Allows(MonotonicTime now) {
    MutexLock lock(mu_);
    if (!bucket_.HasToken(now)) return false;
    bucket_.Take(1, now);
    return true;
  }

 private:
  Mutex mu_;
  TokenBucket bucket_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_RATE_LIMITER_H_
