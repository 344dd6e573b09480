#include "client_lib/rpc/retry.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/types/optional.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

MonotonicDuration GrowingPause(uint32_t failures, MonotonicDuration first,
                               MonotonicDuration longest) {
  MonotonicDuration pause = first;
  for (uint32_t i = 1; i < failures && pause < longest; ++i) pause *= 2;
  return std::min(pause, longest);
}

MonotonicDuration Backoff(int retries, uint64_t random) {
  const MonotonicDuration full =
      GrowingPause(static_cast<uint32_t>(retries) + 1, kFirstBackoff, kMaxBackoff);
  const MonotonicDuration half = full / 2;
  return half + MonotonicDuration(static_cast<MonotonicDuration::rep>(
                    random % static_cast<uint64_t>(half.count())));
}

bool IsUnanswered(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) || absl::IsCancelled(error);
}

MonotonicDuration PushbackOf(const absl::Status& error, MonotonicDuration otherwise) {
  const absl::optional<absl::Cord> pushback = error.GetPayload(kPushbackPayloadUrl);
  uint32_t milliseconds;
  if (!pushback || !absl::SimpleAtoi(std::string(*pushback), &milliseconds)) return otherwise;
  return std::min<MonotonicDuration>(std::chrono::milliseconds(milliseconds), kMaxPushback);
}

uint64_t RebuildChallengeOf(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kRebuildChallengePayloadUrl);
  uint64_t challenge;
  return payload && absl::SimpleAtoi(std::string(*payload), &challenge) ? challenge : 0;
}

bool IsFinal(const absl::Status& error) {
  const absl::optional<absl::Cord> pushback = error.GetPayload(kPushbackPayloadUrl);
  return pushback.has_value() && *pushback == kNeverAgain;
}

bool IsTransientError(const absl::Status& error) {
  return IsUnanswered(error) ||
         (absl::IsResourceExhausted(error) && error.GetPayload(kPushbackPayloadUrl).has_value());
}

std::optional<RoutingTable> AttachedRouting(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kRoutingPayloadUrl);
  RoutingTable table;
  if (!payload || !table.ParseFromString(std::string(*payload))) return std::nullopt;
  return table;
}

RetryDecision DecideRetry(const absl::Status& error, int retries, uint64_t random,
                          RetryBudget& budget) {
  if (IsUnanswered(error)) {
    if (!budget.Spend()) return {RetryAction::kAgain, kMaxBackoff};
    return {RetryAction::kAgain, Backoff(retries, random)};
  }
  switch (error.code()) {
    case absl::StatusCode::kFailedPrecondition:
      if (!error.GetPayload(kRoutingPayloadUrl)) break;
      return {RetryAction::kReroute, Backoff(retries, random)};
    case absl::StatusCode::kResourceExhausted: {
      constexpr MonotonicDuration kNone = MonotonicDuration::min();
      MonotonicDuration asked = PushbackOf(error, kNone);
      if (asked == kNone) break;
      const MonotonicDuration doubled = asked * (1 << std::min(retries, kMaxPushbackDoublings));
      asked = std::max(asked, std::min<MonotonicDuration>(doubled, kMaxBackoff));
      // Up to half longer, so that clients that were refused together do not return together.
      const uint64_t spread = static_cast<uint64_t>(asked.count()) / 2 + 1;
      return {RetryAction::kAgain,
              asked + MonotonicDuration(static_cast<MonotonicDuration::rep>(random % spread))};
    }
    default:
      break;
  }
  return {RetryAction::kGiveUp, MonotonicDuration::zero()};
}

}  // namespace pawl
