#include "server/replication/waiting_calls.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "server/replication/backpressure.h"
#include "server/replication/replica_map.h"
#include "server/testing/two_servers.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kJobId = 77;
constexpr uint32_t kPartitions = 2;
constexpr size_t kMaxCalls = 2;

// This server is server-0, the primary of both partitions of a SYNC job with one rank.
class WaitingCallsTest : public testing::Test {
 protected:
  using Answer = std::shared_ptr<std::optional<absl::Status>>;

  WaitingCallsTest() {
    const PartitionOptions options{.partitions = kPartitions, .consistency = ConsistencyOf(SYNC)};
    replica_map_.Begin(kJobId, options, /*min_in_sync=*/1, "server-0", /*incarnation=*/1,
                       MonotonicDuration::zero());
    Adopt(1, 0);
  }

  // Moves all partitions to that server.
  void Adopt(uint64_t epoch, uint32_t primary) {
    RoutingTable routing = TwoServers(kJobId, epoch);
    for (uint32_t p = 0; p < kPartitions; ++p) {
      routing.add_primary(primary);
      routing.add_replicas()->set_primary_since(epoch);
    }
    std::vector<std::shared_ptr<WaitingCall>> ready;
    std::vector<std::shared_ptr<WaitingCall>> stale;
    ASSERT_TRUE(replica_map_.AdoptRouting(routing, ready, stale));
    WaitingCalls::ResumeReady(ready);
    calls_.FailStale(stale);
  }

  std::vector<std::shared_ptr<Replica>> Replicas() const { return replica_map_.view()->replicas; }

  static std::pair<Answer, WaitingCalls::Resume> NewAnswer() {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    return {answer, [answer](absl::Status status) {
              EXPECT_FALSE(answer->has_value()) << "a call resumes once";
              *answer = std::move(status);
            }};
  }
  CallContext Context(milliseconds patience = milliseconds(1000)) const {
    return {clock_.Now() + patience, nullptr};
  }

  Answer ForStep(uint64_t step) { return ForStep(step, Context()); }
  Answer ForStep(uint64_t step, CallContext context) {
    return ForStep(step, std::move(context), [] { return absl::OkStatus(); });
  }
  Answer ForStep(uint64_t step, CallContext context, absl::FunctionRef<absl::Status()> admit) {
    auto [answer, resume] = NewAnswer();
    calls_.ForStep(Replicas(), /*rank=*/std::nullopt, step, std::move(context), admit,
                   std::move(resume));
    return answer;
  }
  Answer ForAllEnds(uint64_t step, milliseconds patience = milliseconds(1000)) {
    auto [answer, resume] = NewAnswer();
    calls_.ForAllEnds(Replicas(), step, Context(patience), std::move(resume));
    return answer;
  }
  // A change that partition 0 does not have yet.
  ChangeMark NextChange() const {
    const std::shared_ptr<Replica> replica = Replicas()[0];
    MutexLock lock(replica->mu);
    return {replica, replica->partition->log_index() + 1, replica->primary_since};
  }
  Answer ForCommit(const ChangeMark& change) {
    auto [answer, resume] = NewAnswer();
    calls_.ForCommit({change}, Context(), std::move(resume));
    return answer;
  }
  Answer ForDurable(const ChangeMark& change) {
    auto [answer, resume] = NewAnswer();
    calls_.ForDurable({change}, Context(), std::move(resume));
    return answer;
  }

  // The rank ends that step in all partitions.
  void EndStep(uint64_t step) {
    for (const auto& replica : Replicas()) {
      std::vector<std::shared_ptr<WaitingCall>> ready;
      {
        MutexLock lock(replica->mu);
        ASSERT_TRUE(
            replica->partition->EndStep({Sender::Kind::kLogicalWorker, 0, 1, step}, std::nullopt)
                .ok());
        replica->TakeReady(ready);
      }
      WaitingCalls::ResumeReady(ready);
    }
  }
  size_t KeptByReplicas() const {
    size_t kept = 0;
    for (const auto& replica : Replicas()) {
      MutexLock lock(replica->mu);
      kept += replica->waiting_for_step.size() + replica->waiting_for_ends.size() +
              replica->waiting_for_commit.size();
    }
    return kept;
  }

  SimulatedClock clock_;
  ReplicaMap replica_map_{clock_};
  WaitingCalls calls_{kMaxCalls, clock_, [this](absl::string_view message) {
                        return StaleRouting(*replica_map_.view(), message);
                      }};
};

TEST_F(WaitingCallsTest, CallResumesWhenAllPartitionsReachTheStep) {
  const Answer now = ForStep(0);
  ASSERT_TRUE(now->has_value());
  EXPECT_TRUE((*now)->ok());
  const Answer later = ForStep(1);
  EXPECT_FALSE(later->has_value());
  EXPECT_EQ(calls_.Count(), 1u);
  EndStep(0);
  ASSERT_TRUE(later->has_value());
  EXPECT_TRUE((*later)->ok());
  EXPECT_EQ(calls_.Count(), 0u);
  EXPECT_EQ(KeptByReplicas(), 0u);
}

TEST_F(WaitingCallsTest, OnlyACallThatHasToWaitIsAdmitted) {
  int asked = 0;
  const auto admit = [&] {
    ++asked;
    return absl::OkStatus();
  };
  EXPECT_TRUE((*ForStep(0, Context(), admit))->ok());
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(ForStep(1, Context(), admit)->has_value());
  EXPECT_EQ(asked, 1);
}

TEST_F(WaitingCallsTest, CallThatIsNotAdmittedFailsAndTakesNoPlace) {
  const Answer refused =
      ForStep(1, Context(), [] { return absl::ResourceExhaustedError("no room"); });
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(calls_.Count(), 0u);
  EXPECT_EQ(KeptByReplicas(), 0u);
}

TEST_F(WaitingCallsTest, CallBeyondTheLimitIsPushedBack) {
  const Answer first = ForStep(1);
  const Answer second = ForCommit(NextChange());
  for (const Answer& refused : {ForStep(1), ForCommit(NextChange()), ForDurable(NextChange())}) {
    ASSERT_TRUE(refused->has_value());
    const absl::Status& status = **refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "more than 2 calls wait")) << status;
    EXPECT_EQ(status.GetPayload(kPushbackPayloadUrl), absl::Cord(absl::StrCat(kPushbackMs)));
  }
  EXPECT_EQ(calls_.Count(), kMaxCalls);
  EXPECT_EQ(KeptByReplicas(), kPartitions + 1) << "refused calls leave nothing behind";
  const Answer at_once = ForStep(0);
  ASSERT_TRUE(at_once->has_value()) << "a call that need not wait needs no place";
  EXPECT_TRUE((*at_once)->ok());
  EndStep(0);
  EXPECT_TRUE(first->has_value() && (*first)->ok());
  EXPECT_TRUE(second->has_value() && (*second)->ok());
}

TEST_F(WaitingCallsTest, FinishedCallKeepsItsPlaceUntilTheNextSweep) {
  for (size_t i = 0; i < kMaxCalls; ++i) ForStep(1);
  EndStep(0);
  EXPECT_EQ(calls_.Count(), 0u);
  const Answer refused = ForStep(2);
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->code(), absl::StatusCode::kResourceExhausted) << **refused;
  calls_.Expire(Replicas());
  const Answer kept = ForStep(2);
  EXPECT_FALSE(kept->has_value());
  EndStep(1);
  EXPECT_TRUE(kept->has_value() && (*kept)->ok());
}

TEST_F(WaitingCallsTest, CallEndsAtItsDeadlineOrWithItsCaller) {
  const Answer short_one = ForStep(1, Context(milliseconds(10)));
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const Answer long_one = ForStep(1, {clock_.Now() + milliseconds(1000), cancelled});
  clock_.Advance(milliseconds(9));
  calls_.Expire(Replicas());
  EXPECT_FALSE(short_one->has_value());
  clock_.Advance(milliseconds(1));
  calls_.Expire(Replicas());
  ASSERT_TRUE(short_one->has_value());
  EXPECT_EQ((*short_one)->code(), absl::StatusCode::kDeadlineExceeded) << **short_one;
  EXPECT_FALSE(long_one->has_value());
  EXPECT_EQ(KeptByReplicas(), kPartitions);
  *cancelled = true;
  calls_.Expire(Replicas());
  EXPECT_TRUE(long_one->has_value());
  EXPECT_EQ(calls_.Count(), 0u);
  EXPECT_EQ(KeptByReplicas(), 0u) << "abandoned calls are removed";
  EndStep(0);
}

// Another thread may hold a replica's lock for long.
TEST_F(WaitingCallsTest, SweepSkipsLockedReplicas) {
  const Answer answer = ForStep(1, Context(milliseconds(10)));
  clock_.Advance(milliseconds(10));
  {
    const std::shared_ptr<Replica> replica = Replicas()[0];
    MutexLock lock(replica->mu);
    std::thread([&] { calls_.Expire(Replicas()); }).join();
    EXPECT_TRUE(answer->has_value());
  }
  EXPECT_EQ(KeptByReplicas(), 1u);
  calls_.Expire(Replicas());
  EXPECT_EQ(KeptByReplicas(), 0u);
}

TEST_F(WaitingCallsTest, CallForMovedPartitionGetsTheRouting) {
  const ChangeMark change = NextChange();
  const Answer for_step = ForStep(1);
  const Answer for_commit = ForCommit(change);
  Adopt(2, 1);
  const Answer too_late = ForCommit(change);
  for (const Answer& answer : {for_step, for_commit, too_late}) {
    ASSERT_TRUE(answer->has_value());
    EXPECT_EQ((*answer)->code(), absl::StatusCode::kFailedPrecondition) << **answer;
    const auto payload = (*answer)->GetPayload(kRoutingPayloadUrl);
    RoutingTable routing;
    ASSERT_TRUE(payload.has_value() && routing.ParseFromString(std::string(*payload)));
    EXPECT_EQ(routing.epoch(), 2u);
  }
}

TEST_F(WaitingCallsTest, CallForTheEndsOfAStepWaitsForThem) {
  const Answer first = ForAllEnds(0);
  const Answer second = ForAllEnds(1, milliseconds(10));
  EXPECT_EQ(KeptByReplicas(), 2 * kPartitions);
  EXPECT_EQ(calls_.Count(), kMaxCalls);
  EXPECT_EQ((**ForAllEnds(1)).code(), absl::StatusCode::kResourceExhausted);
  EndStep(0);
  ASSERT_TRUE(first->has_value());
  EXPECT_TRUE((*first)->ok());
  EXPECT_FALSE(second->has_value());
  EXPECT_EQ(**ForAllEnds(0), absl::OkStatus()) << "at once";
  clock_.Advance(milliseconds(10));
  calls_.Expire(Replicas());
  ASSERT_TRUE(second->has_value());
  EXPECT_EQ((*second)->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(KeptByReplicas(), 0u);
  const Answer moved = ForAllEnds(1);
  Adopt(2, 1);
  ASSERT_TRUE(moved->has_value());
  EXPECT_EQ((*moved)->code(), absl::StatusCode::kFailedPrecondition) << **moved;
}

TEST_F(WaitingCallsTest, ChangeOfAnEarlierTermIsNotWaitedFor) {
  ChangeMark change = NextChange();
  ++change.primary_since;
  const Answer answer = ForCommit(change);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->code(), absl::StatusCode::kFailedPrecondition) << **answer;
  EXPECT_EQ(calls_.Count(), 0u);
}

TEST_F(WaitingCallsTest, CloseFailsPresentAndLaterCalls) {
  const Answer before = ForStep(1);
  calls_.Close(absl::UnavailableError("the server is ending"));
  calls_.Close(absl::InternalError("closed twice"));
  const Answer after = ForStep(1);
  for (const Answer& answer : {before, after}) {
    ASSERT_TRUE(answer->has_value());
    EXPECT_EQ(**answer, absl::UnavailableError("the server is ending"));
  }
  EXPECT_EQ(calls_.Count(), 0u);
  EndStep(0);
}

}  // namespace
}  // namespace pawl
