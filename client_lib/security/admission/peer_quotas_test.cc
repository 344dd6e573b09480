#include "client_lib/security/admission/peer_quotas.h"

#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Call = PeerQuotas::Call;
using Verdict = PeerQuotas::Verdict;

constexpr char kPull[] = "/pawl.Parameter/Pull";
constexpr char kPush[] = "/pawl.Parameter/Push";
constexpr char kHeartbeat[] = "/pawl.Scheduler/Heartbeat";

class PeerQuotasTest : public ::testing::Test {
 protected:
  PeerQuotasTest() {
    limits_.max_pending_calls = 3;
    limits_.max_pending_bytes = 100;
    limits_.tokens_per_second = 10;
    limits_.burst_tokens = 40;
    limits_.max_debt_seconds = 5;
    limits_.max_waiting_calls = 2;
  }

  PeerQuotas& quotas() {
    if (!quotas_.has_value()) quotas_.emplace(limits_);
    return *quotas_;
  }
  Call& Make(const char* method, uint64_t bytes = 0) {
    Call& call = calls_.emplace_back();
    call.cost = CostOf(method);
    call.bytes = bytes;
    return call;
  }
  Verdict Begin(Call& call, const std::string& peer = "worker") {
    return quotas().Begin(peer, call, now_);
  }

  PeerLimits limits_;
  MonotonicTime now_{std::chrono::seconds(100)};
  std::deque<Call> calls_;
  std::optional<PeerQuotas> quotas_;
};

TEST_F(PeerQuotasTest, CallBeyondThePendingOnesWaitsForTheEndOfOne) {
  Call& first = Make(kPull);
  EXPECT_EQ(Begin(first), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull)), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull)), Verdict::kRun);
  Call& waiting = Make(kPull);
  EXPECT_EQ(Begin(waiting), Verdict::kWait);
  EXPECT_TRUE(quotas().HasWaiting());
  EXPECT_TRUE(quotas().TakeReady(now_ + std::chrono::hours(1)).empty());
  quotas().End(first, now_);
  EXPECT_EQ(quotas().TakeReady(now_), std::vector<Call*>{&waiting});
  EXPECT_FALSE(quotas().HasWaiting());
  EXPECT_EQ(quotas().delayed(), 1u);
}

TEST_F(PeerQuotasTest, PendingPullsDoNotKeepOutPushes) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Begin(Make(kPull)), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull)), Verdict::kWait);
  EXPECT_EQ(Begin(Make(kPush)), Verdict::kRun);
}

TEST_F(PeerQuotasTest, OtherPeersAreNotAffected) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Begin(Make(kPull)), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull)), Verdict::kWait);
  EXPECT_EQ(Begin(Make(kPull), "other"), Verdict::kRun);
}

TEST_F(PeerQuotasTest, BytesArePendingUntilTheCallEnds) {
  Call& large = Make(kPush, 90);
  EXPECT_EQ(Begin(large), Verdict::kRun);
  Call& waiting = Make(kPush, 11);
  EXPECT_EQ(Begin(waiting), Verdict::kWait);
  // In the order of arrival, although it would fit.
  EXPECT_EQ(Begin(Make(kPush, 1)), Verdict::kWait);
  quotas().End(large, now_);
  EXPECT_EQ(quotas().TakeReady(now_).size(), 2u);
}

TEST_F(PeerQuotasTest, SingleCallMayExceedTheBytes) {
  EXPECT_EQ(Begin(Make(kPush, 1000)), Verdict::kRun);
}

TEST_F(PeerQuotasTest, FrequentCallsArePaced) {
  for (int i = 0; i < 40; ++i) {
    Call& call = Make(kHeartbeat);
    ASSERT_EQ(Begin(call), Verdict::kRun) << i;
    quotas().End(call, now_);
  }
  Call& waiting = Make(kHeartbeat);
  EXPECT_EQ(Begin(waiting), Verdict::kWait);
  ASSERT_TRUE(quotas().NextReady(now_).has_value());
  EXPECT_LE(*quotas().NextReady(now_) - now_, std::chrono::milliseconds(110));
  EXPECT_TRUE(quotas().TakeReady(now_).empty());
  now_ = *quotas().NextReady(now_);
  EXPECT_EQ(quotas().TakeReady(now_), std::vector<Call*>{&waiting});
}

TEST_F(PeerQuotasTest, RegistrationsCostMore) {
  for (int i = 0; i < 2; ++i) {
    Call& call = Make("/pawl.Scheduler/Register");
    ASSERT_EQ(Begin(call), Verdict::kRun) << i;
    quotas().End(call, now_);
  }
  EXPECT_EQ(Begin(Make("/pawl.Scheduler/Register")), Verdict::kWait);
}

TEST_F(PeerQuotasTest, PushesAreFree) {
  for (int i = 0; i < 1000; ++i) {
    Call& call = Make(kPush);
    ASSERT_EQ(Begin(call), Verdict::kRun) << i;
    quotas().End(call, now_);
  }
}

TEST_F(PeerQuotasTest, RefusedCallsPutAPeerInDebt) {
  for (int i = 0; i < 2; ++i) {
    Call& call = Make(kPush);
    ASSERT_EQ(Begin(call), Verdict::kRun);
    quotas().OnRefused(call, now_);
    quotas().End(call, now_);
  }
  Call& waiting = Make(kPush);
  EXPECT_EQ(Begin(waiting), Verdict::kWait);
  EXPECT_EQ(Begin(Make(kPush), "other"), Verdict::kRun);
  now_ += std::chrono::milliseconds(150);
  EXPECT_EQ(quotas().TakeReady(now_), std::vector<Call*>{&waiting});
}

TEST_F(PeerQuotasTest, PeerThatAbandonsManyCallsLosesItsConnection) {
  // The burst, and half of the greatest debt.
  for (int i = 0; i < (40 + 25) / kAbandonedCost - 1; ++i)
    ASSERT_EQ(quotas().OnAbandoned("worker", now_), Verdict::kRun) << i;
  EXPECT_EQ(quotas().OnAbandoned("worker", now_), Verdict::kRefuseAndClose);
  EXPECT_EQ(quotas().OnAbandoned("other", now_), Verdict::kRun);
}

TEST_F(PeerQuotasTest, DebtIsBounded) {
  Call& call = Make(kPush);
  ASSERT_EQ(Begin(call), Verdict::kRun);
  for (int i = 0; i < 1000; ++i) quotas().OnRefused(call, now_);
  EXPECT_EQ(Begin(Make(kPush)), Verdict::kWait);
  EXPECT_LE(*quotas().NextReady(now_) - now_, std::chrono::milliseconds(5200));
}

TEST_F(PeerQuotasTest, CallsBeyondTheWaitingOnesAreRefusedAndAPeerInDebtLosesItsConnection) {
  Call& call = Make(kPush);
  ASSERT_EQ(Begin(call), Verdict::kRun);
  for (int i = 0; i < 2; ++i) Begin(Make(kPush));
  quotas().OnRefused(call, now_);
  quotas().OnRefused(call, now_);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Begin(Make(kPush)), Verdict::kWait);
  EXPECT_EQ(Begin(Make(kPush)), Verdict::kRefuse);
  quotas().OnRefused(call, now_);
  quotas().OnRefused(call, now_);
  EXPECT_EQ(Begin(Make(kPush)), Verdict::kRefuseAndClose);
  EXPECT_EQ(quotas().refused(), 2u);
}

TEST_F(PeerQuotasTest, AllWaitingCallsCanBeTaken) {
  for (int i = 0; i < 3; ++i) Begin(Make(kPull));
  Begin(Make(kPull));
  Begin(Make(kPull));
  EXPECT_EQ(quotas().TakeAll().size(), 2u);
  EXPECT_FALSE(quotas().HasWaiting());
}

TEST_F(PeerQuotasTest, PeersBeyondTheTableShareTheQuotaOfTheirCertificate) {
  // One certificate on many hosts.
  for (size_t i = 0; i < kMaxPeers; ++i)
    ASSERT_EQ(Begin(Make(kPull), PeerName({"attacker"}, absl::StrCat(i))), Verdict::kRun);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(Begin(Make(kPull), PeerName({"worker"}, absl::StrCat(i))), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"worker"}, "3")), Verdict::kWait);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"client"}, "3")), Verdict::kRun);
  // Idle peers make room, after a while.
  for (Call& call : calls_) {
    if (call.runs) quotas().End(call, now_);
  }
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(Begin(Make(kPull), PeerName({"client"}, absl::StrCat(i))), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"client"}, "2")), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"client"}, "4")), Verdict::kWait);
  now_ += std::chrono::seconds(1);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"client"}, "5")), Verdict::kRun);
}

TEST_F(PeerQuotasTest, CertificatesBeyondTwiceTheTableShareOneQuota) {
  for (size_t i = 0; i < 2 * kMaxPeers; ++i)
    ASSERT_EQ(Begin(Make(kPull), PeerName({absl::StrCat(i)}, "host")), Verdict::kRun);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(Begin(Make(kPull), PeerName({absl::StrCat("x", i)}, "host")), Verdict::kRun);
  EXPECT_EQ(Begin(Make(kPull), PeerName({"x"}, "host")), Verdict::kWait);
}

TEST(PeerNameTest, HasTheUrisOfItsCertificate) {
  EXPECT_EQ(UrisOfPeer(PeerName({"a:1", "b:2"}, "10.0.0.1")), "a:1 b:2 ");
  EXPECT_EQ(UrisOfPeer(PeerName({}, "fd00::")), "");
}

}  // namespace
}  // namespace pawl
