// What to do about a call that failed: the decision, apart from who acts on it.
#ifndef PAWL_CLIENT_LIB_RPC_RETRY_H_
#define PAWL_CLIENT_LIB_RPC_RETRY_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

// The delay before the n-th repetition is kFirstBackoff * 2^n up to kMaxBackoff, times a random
// factor in [0.5, 1).
inline constexpr std::chrono::milliseconds kFirstBackoff{20};
inline constexpr std::chrono::milliseconds kMaxBackoff{1000};
// What a server asks for by a pushback is doubled with each repetition, up to this times: what it
// has no room for may stay so for as long as somebody is slow.
inline constexpr int kMaxPushbackDoublings = 5;
// A server that asks for longer than this is not believed.
inline constexpr std::chrono::milliseconds kMaxPushback{10000};

enum class RetryAction {
  // The error is the call's result.
  kGiveUp,
  // The same message again, after `delay`.
  kAgain,
  // The status brings a routing table: the same push ids by that one.
  kReroute,
};

struct RetryDecision {
  RetryAction action;
  MonotonicDuration delay;
};

// Bounds repetitions in proportion to successes, so that clients do not drown a
// server that has trouble. Over the budget a call still goes on, at kMaxBackoff: giving
// up early would not be what its deadline says. Thread-safe.
class RetryBudget {
 public:
  // Repetitions that need no success before them.
  static constexpr int64_t kMaxTokens = 100;

  // Earns one repetition: a network that loses a third of all messages stays within the budget.
  void OnSuccess() {
    int64_t tokens = tokens_.load(std::memory_order_relaxed);
    while (tokens < kMaxTokens &&
           !tokens_.compare_exchange_weak(tokens, tokens + 1, std::memory_order_relaxed)) {
    }
  }

  // False: over the budget.
  bool Spend() {
    int64_t tokens = tokens_.load(std::memory_order_relaxed);
    while (tokens > 0) {
      if (tokens_.compare_exchange_weak(tokens, tokens - 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }

 private:
  std::atomic<int64_t> tokens_{kMaxTokens};
};

// The delay before repetition number `retries` (0 is the first); `random` is any number.
MonotonicDuration Backoff(int retries, uint64_t random);

// Whether nobody has refused it: nobody was there, or has not heard yet what the asker has
// (UNAVAILABLE), it was not done in its time (DEADLINE_EXCEEDED), or who was asked is ending
// (CANCELLED).
bool IsUnanswered(const absl::Status& error);

// The time that it asks for by a pushback, or `otherwise`.
MonotonicDuration PushbackOf(const absl::Status& error, MonotonicDuration otherwise);

// Whether it says that the same can never succeed (kNeverAgain).
bool IsFinal(const absl::Status& error);

// Whether the same may succeed when it is tried again: it is unanswered, or there is no room now,
// and that is said so (RESOURCE_EXHAUSTED with a pushback, as while a disk is full).
bool IsPassing(const absl::Status& error);

// For a call whose attempt ended with `error` after `retries` repetitions.
// REQUIRES: !error.ok().
RetryDecision DecideRetry(const absl::Status& error, int retries, uint64_t random,
                          RetryBudget& budget);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_RETRY_H_
