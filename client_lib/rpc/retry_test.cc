#include "client_lib/rpc/retry.h"

#include "absl/strings/cord.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

RetryAction ActionFor(const absl::Status& status) {
  RetryBudget budget;
  return DecideRetry(status, 0, 0, budget).action;
}

TEST(RetryTest, UnansweredCallsAreRepeated) {
  EXPECT_EQ(ActionFor(absl::UnavailableError("x")), RetryAction::kAgain);
  EXPECT_EQ(ActionFor(absl::DeadlineExceededError("x")), RetryAction::kAgain);
  EXPECT_EQ(ActionFor(absl::CancelledError("x")), RetryAction::kAgain);
}

TEST(RetryTest, RefusalsAreFinal) {
  EXPECT_EQ(ActionFor(absl::InvalidArgumentError("x")), RetryAction::kGiveUp);
  EXPECT_EQ(ActionFor(absl::OutOfRangeError("x")), RetryAction::kGiveUp);
  EXPECT_EQ(ActionFor(absl::AbortedError("x")), RetryAction::kGiveUp);
  EXPECT_EQ(ActionFor(absl::FailedPreconditionError("a step out of turn")), RetryAction::kGiveUp);
  EXPECT_EQ(ActionFor(absl::ResourceExhaustedError("no pushback")), RetryAction::kGiveUp);
}

TEST(RetryTest, AttachedRoutingTableReroutes) {
  absl::Status status = absl::FailedPreconditionError("elsewhere");
  status.SetPayload(kRoutingPayloadUrl, absl::Cord("..."));
  EXPECT_EQ(ActionFor(status), RetryAction::kReroute);
}

TEST(RetryTest, PushbackIsObeyedUpToItsLimit) {
  RetryBudget budget;
  absl::Status status = absl::ResourceExhaustedError("full");
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("250"));
  for (uint64_t random = 0; random < 1000; ++random) {
    const RetryDecision decision = DecideRetry(status, 0, random * 0x9e3779b97f4a7c15, budget);
    EXPECT_EQ(decision.action, RetryAction::kAgain);
    EXPECT_GE(decision.delay, milliseconds(250));
    EXPECT_LE(decision.delay, milliseconds(375));
  }
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("4000000000"));
  EXPECT_LE(DecideRetry(status, 0, 0, budget).delay, kMaxPushback * 3 / 2);
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("soon"));
  EXPECT_EQ(DecideRetry(status, 0, 0, budget).action, RetryAction::kGiveUp);
}

TEST(RetryTest, RebuildChallengeIsANumber) {
  absl::Status status = absl::UnavailableError("rebuilding");
  EXPECT_EQ(RebuildChallengeOf(status), 0u);
  status.SetPayload(kRebuildChallengePayloadUrl, absl::Cord("18446744073709551615"));
  EXPECT_EQ(RebuildChallengeOf(status), ~uint64_t{0});
  status.SetPayload(kRebuildChallengePayloadUrl, absl::Cord("soon"));
  EXPECT_EQ(RebuildChallengeOf(status), 0u);
}

TEST(RetryTest, PushbackDoublesAndSpendsNoBudget) {
  RetryBudget budget;
  absl::Status status = absl::ResourceExhaustedError("full");
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("20"));
  EXPECT_EQ(DecideRetry(status, 0, 0, budget).delay, milliseconds(20));
  EXPECT_EQ(DecideRetry(status, 1, 0, budget).delay, milliseconds(40));
  EXPECT_EQ(DecideRetry(status, 5, 0, budget).delay, milliseconds(640));
  EXPECT_EQ(DecideRetry(status, 1000, 0, budget).delay, milliseconds(640));
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("300"));
  EXPECT_EQ(DecideRetry(status, 9, 0, budget).delay, kMaxBackoff);
  // The server itself may ask for more.
  status.SetPayload(kPushbackPayloadUrl, absl::Cord("3000"));
  EXPECT_EQ(DecideRetry(status, 9, 0, budget).delay, milliseconds(3000));
  EXPECT_LT(DecideRetry(absl::UnavailableError("x"), 0, 0, budget).delay, kMaxBackoff);
}

TEST(RetryTest, BackoffDoublesUpToItsMaximumWithJitter) {
  milliseconds full = kFirstBackoff;
  for (int retries = 0; retries < 100; ++retries) {
    EXPECT_EQ(Backoff(retries, 0), MonotonicDuration(full) / 2) << retries;
    EXPECT_LT(Backoff(retries, UINT64_MAX), full) << retries;
    full = std::min(full * 2, kMaxBackoff);
  }
  EXPECT_NE(Backoff(3, 1000), Backoff(3, 2000));
}

TEST(RetryTest, RetriesOverTheBudgetUseTheMaximumBackoff) {
  RetryBudget budget;
  const absl::Status status = absl::UnavailableError("x");
  int fast = 0;
  while (DecideRetry(status, 0, 0, budget).delay < kMaxBackoff) ++fast;
  EXPECT_EQ(fast, RetryBudget::kMaxTokens);
  EXPECT_EQ(DecideRetry(status, 0, 0, budget).action, RetryAction::kAgain);
  budget.OnSuccess();
  EXPECT_LT(DecideRetry(status, 0, 0, budget).delay, kMaxBackoff);
  EXPECT_EQ(DecideRetry(status, 0, 0, budget).delay, kMaxBackoff);
}

}  // namespace
}  // namespace pawl
