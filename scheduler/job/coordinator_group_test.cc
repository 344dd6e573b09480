// Groups of workers for collective operations: how they form and end.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorGroupTest : public CoordinatorFixture {
 protected:
  // Joins with all assigned ranks.
  Answer<JoinGroupResponse> JoinGroup(const RegisterResponse& worker) {
    auto request = From<JoinGroupRequest>(worker);
    const auto assignment = GetAssignmentWhenReady(worker);
    if (assignment->has_value() && (*assignment)->ok()) {
      for (const LogicalWorkerAssignment& rank : (**assignment)->logical_workers()) {
        GroupRank& to = *request.add_ranks();
        to.set_rank(rank.rank());
        to.set_incarnation(rank.incarnation());
      }
    }
    return Call(&Coordinator::JoinGroup, request);
  }
  Answer<ExchangeInGroupResponse> Exchange(const RegisterResponse& worker, uint64_t generation,
                                           const std::string& value) {
    auto request = From<ExchangeInGroupRequest>(worker);
    request.set_generation(generation);
    request.set_name("addresses");
    request.set_value(value);
    return Call(&Coordinator::ExchangeInGroup, request);
  }
  Answer<WatchGroupResponse> Watch(const RegisterResponse& worker, uint64_t generation) {
    auto request = From<WatchGroupRequest>(worker);
    request.set_generation(generation);
    return Call(&Coordinator::WatchGroup, request);
  }
  template <typename Response>
  static absl::Status StatusIn(const Answer<Response>& answer) {
    return ResultOf(answer).status();
  }
  // Forms a group of two workers; returns its generation.
  uint64_t FormTwo(const std::string& job = kTraining) {
    BeginWithStore(job, 1, 2);
    Join(SERVER_ROLE);
    first_ = JoinFollower();
    second_ = JoinFollower();
    return FormAgain();
  }
  uint64_t FormAgain() {
    const auto of_second = JoinGroup(second_);
    EXPECT_FALSE(of_second->has_value());
    const auto of_first = JoinGroup(first_);
    EXPECT_TRUE(StatusIn(of_first).ok() && StatusIn(of_second).ok())
        << StatusIn(of_first) << StatusIn(of_second);
    if (!StatusIn(of_first).ok() || !StatusIn(of_second).ok()) return 0;
    EXPECT_EQ((**of_first)->place(), 0u);
    EXPECT_EQ((**of_second)->place(), 1u);
    EXPECT_EQ((**of_first)->generation(), (**of_second)->generation());
    return (**of_first)->generation();
  }

  RegisterResponse first_;
  RegisterResponse second_;
};

TEST_F(CoordinatorGroupTest, MembersExchangeAndWatchUntilOneDies) {
  const uint64_t generation = FormTwo();
  const auto of_first = Exchange(first_, generation, "one");
  EXPECT_FALSE(of_first->has_value());
  const auto of_second = Exchange(second_, generation, "two");
  ASSERT_TRUE(StatusIn(of_first).ok() && StatusIn(of_second).ok());
  EXPECT_EQ((**of_first)->values(1), "two");
  EXPECT_EQ((**of_second)->values(0), "one");
  const auto watched = Watch(first_, generation);
  EXPECT_FALSE(watched->has_value());
  Kill(second_.node());
  Pass(options_.lease + milliseconds(100));
  ASSERT_TRUE(StatusIn(watched).ok());
  EXPECT_NE((**watched)->reason().find("died"), std::string::npos) << (**watched)->reason();
  EXPECT_TRUE(absl::IsAborted(StatusIn(Exchange(first_, generation, "one"))));
}

TEST_F(CoordinatorGroupTest, SurvivorTakesRanksOverAndContinuesAlone) {
  const uint64_t generation = FormTwo();
  Watch(first_, generation);
  Kill(second_.node());
  // Its connection is broken long before the lease ends.
  auto joined = JoinGroup(first_);
  EXPECT_FALSE(joined->has_value());
  Pass(options_.lease + seconds(6));
  EXPECT_TRUE(absl::IsFailedPrecondition(StatusIn(joined))) << StatusIn(joined);
  joined = JoinGroup(first_);
  ASSERT_TRUE(StatusIn(joined).ok());
  EXPECT_EQ((**joined)->members_size(), 1);
  EXPECT_EQ((**joined)->members(0).ranks_size(), 4);
  EXPECT_GT((**joined)->generation(), generation);
}

TEST_F(CoordinatorGroupTest, ReturningWorkerJoinsTheNextGroup) {
  const uint64_t generation = FormTwo();
  const auto watched = Watch(first_, generation);
  RegisterRequest again = Return(second_.node(), ++nonce_);
  again.set_follows_assignment(true);
  Exchange(second_, generation, "two");
  Kill(second_.node());
  EXPECT_TRUE(absl::IsUnavailable(Register(again).status())) << "its former process may live";
  Pass(options_.lease / 2);
  second_ = JoinBy(again);
  EXPECT_TRUE(StatusIn(watched).ok()) << "its death is not waited for";
  EXPECT_GT(FormAgain(), generation);
}

TEST_F(CoordinatorGroupTest, GoodbyeEndsTheGroup) {
  const uint64_t generation = FormTwo();
  const auto watched = Watch(first_, generation);
  const auto exchanged = Exchange(first_, generation, "one");
  ASSERT_TRUE(Goodbye(second_).ok());
  EXPECT_TRUE(StatusIn(watched).ok());
  EXPECT_TRUE(absl::IsAborted(StatusIn(exchanged)));
}

TEST_F(CoordinatorGroupTest, GivenUpRanksEndTheGroup) {
  const uint64_t generation = FormTwo(absl::StrCat(kTraining, "elastic: true"));
  const std::vector<RegisterResponse> members = {first_, second_};
  std::vector<Answer<GetAssignmentResponse>> before;
  for (const RegisterResponse& worker : members) before.push_back(GetAssignmentWhenReady(worker));
  const auto watched = Watch(first_, generation);
  const RegisterResponse third = JoinFollower();
  EXPECT_FALSE(watched->has_value()) << "the ranks' host ends its step first";
  // The placement decides which ranks move.
  for (size_t i = 0; i < members.size(); ++i) {
    auto request = From<GiveUpRanksRequest>(members[i]);
    std::set<uint32_t> kept;
    const auto now = GetAssignmentWhenReady(members[i]);
    for (const LogicalWorkerAssignment& rank : (**now)->logical_workers()) kept.insert(rank.rank());
    for (const LogicalWorkerAssignment& rank : (**before[i])->logical_workers()) {
      if (!kept.contains(rank.rank())) *request.add_logical_workers() = rank;
    }
    Call(&Coordinator::GiveUpRanks, request);
  }
  EXPECT_TRUE(StatusIn(watched).ok());
  JoinGroup(first_);
  JoinGroup(second_);
  const auto joined = JoinGroup(third);
  ASSERT_TRUE(StatusIn(joined).ok()) << StatusIn(joined);
  EXPECT_EQ((**joined)->members_size(), 3);
}

TEST_F(CoordinatorGroupTest, SecondJoinEndsTheGroup) {
  const uint64_t generation = FormTwo();
  const auto watched = Watch(first_, generation);
  Watch(second_, generation);
  const auto joined = JoinGroup(second_);
  EXPECT_FALSE(joined->has_value());
  ASSERT_TRUE(StatusIn(watched).ok());
  EXPECT_EQ((**watched)->reason(), absl::StrCat(second_.node(), " joins again"));
  EXPECT_TRUE(StatusIn(JoinGroup(first_)).ok());
  EXPECT_TRUE(StatusIn(joined).ok());
}

TEST_F(CoordinatorGroupTest, CancelledJoinIsInNoGroup) {
  BeginWithStore(kTraining, 1, 2);
  Join(SERVER_ROLE);
  first_ = JoinFollower();
  second_ = JoinFollower();
  const auto gave_up = JoinGroup(second_);
  const Ticket ticket = ticket_;
  coordinator_->Cancel(ticket, /*deadline_passed=*/true);
  EXPECT_TRUE(absl::IsDeadlineExceeded(StatusIn(gave_up)));
  EXPECT_FALSE(JoinGroup(first_)->has_value());
}

TEST_F(CoordinatorGroupTest, GroupIsAnnouncedAfterItsNumberIsSaved) {
  BeginWithStore(kTraining, 1, 2);
  Join(SERVER_ROLE);
  first_ = JoinFollower();
  second_ = JoinFollower();
  // Their first answers wait for a save too.
  GetAssignmentWhenReady(first_);
  GetAssignmentWhenReady(second_);
  HoldSaves();
  const auto of_second = JoinGroup(second_);
  const auto of_first = JoinGroup(first_);
  EXPECT_FALSE(of_first->has_value());
  ReleaseSaves();
  ASSERT_TRUE(StatusIn(of_first).ok());
  EXPECT_GE(Saved().membership().last_incarnation(), (**of_first)->generation());
}

TEST_F(CoordinatorGroupTest, RestartEndsTheGroupAndNumbersTheNextHigher) {
  const uint64_t generation = FormTwo();
  Restart(milliseconds(500));
  Pass(seconds(1));
  EXPECT_TRUE(StatusIn(Watch(first_, generation)).ok());
  EXPECT_TRUE(absl::IsAborted(StatusIn(Exchange(second_, generation, "two"))));
  EXPECT_GT(FormAgain(), generation);
}

TEST_F(CoordinatorGroupTest, JobEndAnswersAllPendingCalls) {
  const uint64_t generation = FormTwo();
  const auto watched = Watch(first_, generation);
  const auto exchanged = Exchange(first_, generation, "one");
  ASSERT_TRUE(StopJob("enough").ok());
  EXPECT_FALSE(StatusIn(watched).ok());
  EXPECT_FALSE(StatusIn(exchanged).ok());
  EXPECT_TRUE(watched->has_value() && exchanged->has_value());
  EXPECT_FALSE(StatusIn(JoinGroup(first_)).ok());
}

TEST_F(CoordinatorGroupTest, OldIncarnationsAndOtherRolesAreRefused) {
  const uint64_t generation = FormTwo();
  RegisterResponse old = first_;
  old.set_incarnation(1000);
  EXPECT_TRUE(absl::IsAborted(StatusIn(Watch(old, generation))));
  EXPECT_TRUE(absl::IsAborted(StatusIn(Exchange(old, generation, ""))));
  EXPECT_TRUE(absl::IsAborted(StatusIn(JoinGroup(old))));
  const RegisterResponse server = Join(SERVER_ROLE);
  EXPECT_TRUE(absl::IsInvalidArgument(StatusIn(Watch(server, generation))));
}

}  // namespace
}  // namespace pawl
