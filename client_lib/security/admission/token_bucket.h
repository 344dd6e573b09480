// A budget that time refills.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_TOKEN_BUCKET_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_TOKEN_BUCKET_H_

#include <algorithm>

#include "client_lib/base/clock.h"

namespace pawl {

// Holds up to `burst` tokens and gains `per_second`. Starts full. For one thread.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst, MonotonicTime now)
      : per_second_(per_second), burst_(burst), tokens_(burst), refilled_at_(now) {}

  // Whether there is a token, so that Take is permitted.
  bool HasToken(MonotonicTime now) { return TokensAt(now) >= 1; }
  // May leave a debt, at most that of `max_debt_seconds`.
  void Take(double tokens, MonotonicTime now, double max_debt_seconds = 0) {
    tokens_ = std::max(TokensAt(now) - tokens, -per_second_ * max_debt_seconds);
  }
  bool IsFull(MonotonicTime now) { return TokensAt(now) >= burst_; }
  // When HasToken becomes true.
  MonotonicTime HasTokenAt(MonotonicTime now) {
    const double missing = 1 - TokensAt(now);
    if (missing <= 0) return now;
    return now +
           std::chrono::duration_cast<MonotonicDuration>(
               std::chrono::duration<double>(missing / per_second_)) +
           std::chrono::milliseconds(1);
  }

  double TokensAt(MonotonicTime now) {
    if (now > refilled_at_) {
      tokens_ = std::min(burst_, tokens_ + per_second_ * Seconds(now - refilled_at_));
      refilled_at_ = now;
    }
    return tokens_;
  }

 private:
  double per_second_;
  double burst_;
  double tokens_;
  MonotonicTime refilled_at_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_TOKEN_BUCKET_H_
