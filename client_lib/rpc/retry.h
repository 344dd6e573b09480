// The payloads of a failed call's status, and the decision whether to repeat the call. Pure
// functions: the caller waits and sends.
#ifndef PAWL_CLIENT_LIB_RPC_RETRY_H_
#define PAWL_CLIENT_LIB_RPC_RETRY_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The delay before the n-th repetition is kFirstBackoff * 2^n up to kMaxBackoff, times a random
// factor in [0.5, 1).
inline constexpr std::chrono::milliseconds kFirstBackoff{20};
inline constexpr std::chrono::milliseconds kMaxBackoff{1000};
// A server's pushback is doubled with each repetition, up to this many times: a server that has no
// room regains none while one of its peers is slow.
inline constexpr int kMaxPushbackDoublings = 5;
// A longer pushback is reduced to this.
inline constexpr std::chrono::milliseconds kMaxPushback{10000};

enum class RetryAction {
  // The error is the call's result.
  kGiveUp,
  // Send the same message again after `delay`.
  kAgain,
  // The status carries a routing table: send the same push ids according to it.
  kReroute,
};

struct RetryDecision {
  RetryAction action;
  MonotonicDuration delay;
};

// Bounds repetitions in proportion to successes, so that clients do not flood an overloaded server.
// Over the budget a call is repeated at kMaxBackoff only, until its deadline. Thread-safe.
class RetryBudget {
 public:
  // The repetitions that may precede the first success.
  static constexpr int64_t kMaxTokens = 100;

  // Earns one repetition: a network that loses a third of all messages stays within the budget.
  void OnSuccess() {
    int64_t tokens = tokens_.load(std::memory_order_relaxed);
    while (tokens < kMaxTokens &&
           !tokens_.compare_exchange_weak(tokens, tokens + 1, std::memory_order_relaxed)) {
    }
  }

  // Returns false over the budget.
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

// The pause after `failures` failures in a row: `first` after the first one, twice as long after
// each further one, at most `longest`.
MonotonicDuration GrowingPause(uint32_t failures, MonotonicDuration first,
                               MonotonicDuration longest);

// The delay before repetition number `retries` (0 is the first); `random` is any number.
MonotonicDuration Backoff(int retries, uint64_t random);

// Whether the request was not refused: the peer was unreachable or not yet up to date
// (UNAVAILABLE), did not answer in time (DEADLINE_EXCEEDED), or is shutting down (CANCELLED).
bool IsUnanswered(const absl::Status& error);

// The pushback of `error`, or `otherwise` if it has none.
MonotonicDuration PushbackOf(const absl::Status& error, MonotonicDuration otherwise);

// The rebuild challenge that `error` carries; 0 if it has none.
uint64_t RebuildChallengeOf(const absl::Status& error);

// Whether the pushback is kNeverAgain: a repetition can never succeed.
bool IsFinal(const absl::Status& error);

// Whether a repetition may succeed: the request is unanswered, or the server has no room now
// (RESOURCE_EXHAUSTED with a pushback, as while a disk is full).
bool IsTransientError(const absl::Status& error);

// The routing table that `error` carries; nullopt if it has none or the bytes do not parse. The
// table comes from the peer and is not validated.
std::optional<RoutingTable> AttachedRouting(const absl::Status& error);

// Decides about a call whose attempt ended with `error` after `retries` repetitions.
// REQUIRES: !error.ok().
RetryDecision DecideRetry(const absl::Status& error, int retries, uint64_t random,
                          RetryBudget& budget);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_RETRY_H_
