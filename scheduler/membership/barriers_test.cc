#include "scheduler/membership/barriers.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Kind = Barriers::Kind;
using Outcome = Barriers::Outcome;

TEST(BarriersTest, LastPartyOpensTheBarrier) {
  Barriers barriers;
  EXPECT_EQ(*barriers.Arrive("epoch", 3, 0, "worker-0"), Outcome::kWaiting);
  EXPECT_EQ(*barriers.Arrive("epoch", 3, 2, "worker-1"), Outcome::kWaiting);
  EXPECT_EQ(*barriers.Arrive("epoch", 3, 1, "worker-0"), Outcome::kComplete);
}

TEST(BarriersTest, RepeatedArrivalCountsOnce) {
  Barriers barriers;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(*barriers.Arrive("epoch", 2, 0, "worker-0"), Outcome::kWaiting);
  EXPECT_EQ(*barriers.Arrive("epoch", 2, 1, "worker-1"), Outcome::kComplete);
  EXPECT_EQ(*barriers.Arrive("epoch", 2, 0, "worker-0"), Outcome::kComplete);
}

TEST(BarriersTest, ImpossibleNumbersAreRefused) {
  Barriers barriers;
  EXPECT_EQ(barriers.Arrive("", 1, 0, "n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(barriers.Arrive(std::string(129, 'x'), 1, 0, "n").status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string name : {"a\x1b[", "a\nb", "\001a", "\x7f"}) {
    EXPECT_EQ(barriers.Arrive(name, 1, 0, "n").status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(barriers.Arrive("b", 0, 0, "n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(barriers.Arrive("b", kMaxBarrierParties + 1, 0, "n").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(barriers.Arrive("b", 2, 2, "n").status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(barriers.Arrive("b", 2, 0, "n").ok());
  EXPECT_EQ(barriers.Arrive("b", 3, 1, "n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(barriers.Arrive("b", 2, 0, "other").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*barriers.Arrive("b", 2, 1, "other"), Outcome::kComplete);
}

TEST(BarriersTest, PartyThatGivesUpFailsTheBarrier) {
  Barriers barriers;
  ASSERT_TRUE(barriers.Arrive("epoch", 3, 0, "worker-0").ok());
  ASSERT_TRUE(barriers.Arrive("epoch", 3, 1, "worker-1").ok());
  const absl::Status failure = barriers.FailParty("epoch", 1, "worker-1", "gave up");
  EXPECT_EQ(failure.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(failure.message(),
            "barrier epoch: party 1 (worker-1) gave up; 2 of 3 parties had come");
  EXPECT_EQ(barriers.Arrive("epoch", 3, 2, "worker-2").status(), failure);
  EXPECT_TRUE(barriers.FailParty("epoch", 0, "worker-0", "too late to matter").ok());
}

TEST(BarriersTest, FormerPartyDoesNotFailTheBarrier) {
  Barriers barriers;
  ASSERT_TRUE(barriers.Arrive("epoch", 2, 0, "worker-0").ok());
  barriers.Withdraw("worker-0", 0);
  ASSERT_TRUE(barriers.Arrive("epoch", 2, 0, "worker-1").ok());
  EXPECT_TRUE(barriers.FailParty("epoch", 0, "worker-0", "gave up").ok());
  EXPECT_EQ(*barriers.Arrive("epoch", 2, 1, "worker-0"), Outcome::kComplete);
}

TEST(BarriersTest, DeadNodeFailsOnlyTheBarriersAtWhichItWaits) {
  Barriers barriers;
  ASSERT_TRUE(barriers.Arrive("a", 2, 0, "worker-0").ok());
  ASSERT_TRUE(barriers.Arrive("b", 2, 0, "worker-1").ok());
  ASSERT_TRUE(barriers.Arrive("c", 1, 0, "worker-0").ok());
  const auto failures = barriers.FailNode("worker-0", "died");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].key, "a");
  EXPECT_EQ(*barriers.Arrive("b", 2, 1, "worker-2"), Outcome::kComplete);
}

TEST(BarriersTest, AnotherNodeMayReplaceAWithdrawnParty) {
  Barriers barriers;
  ASSERT_TRUE(barriers.Arrive("b", 2, 0, "worker-0").ok());
  EXPECT_FALSE(barriers.Arrive("b", 2, 0, "worker-1").ok());
  barriers.Withdraw("worker-1", 0);
  EXPECT_FALSE(barriers.Arrive("b", 2, 0, "worker-1").ok());
  barriers.Withdraw("worker-0", 0);
  EXPECT_EQ(*barriers.Arrive("b", 2, 1, "worker-0"), Barriers::Outcome::kWaiting);
  EXPECT_EQ(*barriers.Arrive("b", 2, 0, "worker-1"), Barriers::Outcome::kComplete);
}

TEST(BarriersTest, OpenBarriersAreBounded) {
  Barriers barriers;
  for (size_t i = 0; i < kMaxOpenBarriers; ++i)
    ASSERT_TRUE(barriers.Arrive(absl::StrCat("b", i), 2, 0, "n").ok());
  EXPECT_EQ(barriers.Arrive("more", 2, 0, "n").status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(*barriers.Arrive("b0", 2, 1, "m"), Outcome::kComplete);
  EXPECT_TRUE(barriers.Arrive("more", 2, 0, "n").ok());
}

TEST(BarriersTest, OthersDoNotTakeTheNamesOfTheRanks) {
  Barriers barriers;
  ASSERT_EQ(*barriers.Arrive("closed", 1, 0, "client-0", Kind::kOthers), Outcome::kComplete);
  ASSERT_EQ(*barriers.Arrive("open", 3, 0, "client-0", Kind::kOthers), Outcome::kWaiting);
  for (const char* const name : {"closed", "open"}) {
    EXPECT_EQ(*barriers.Arrive(name, 2, 0, "worker-0"), Outcome::kWaiting);
    EXPECT_EQ(*barriers.Arrive(name, 2, 1, "worker-1"), Outcome::kComplete);
  }
  EXPECT_EQ(barriers.FailNode("client-0", "died").size(), 1u);
}

TEST(BarriersTest, OthersDoNotUseUpTheLimitsOfTheRanks) {
  Barriers barriers;
  ASSERT_EQ(*barriers.Arrive("first", 1, 0, "worker-0"), Outcome::kComplete);
  for (size_t i = 0; i < kMaxOpenBarriers; ++i) {
    const std::string node = absl::StrCat("client-", i / kMaxOpenBarriersOfNode);
    ASSERT_TRUE(barriers.Arrive(absl::StrCat("b", i), 2, 0, node, Kind::kOthers).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(
      barriers.Arrive("more", 2, 0, "client-100", Kind::kOthers).status()));
  EXPECT_TRUE(barriers.Arrive("more", 2, 0, "worker-0").ok());
  ASSERT_EQ(barriers.FailNode("client-0", "died").size(), kMaxOpenBarriersOfNode);
  for (size_t i = 0; i < kMaxClosedBarriers; ++i) {
    ASSERT_TRUE(barriers.Arrive(absl::StrCat("closed", i), 1, 0, "client-100", Kind::kOthers).ok());
  }
  EXPECT_EQ(barriers.Arrive("first", 2, 0, "worker-0").status().code(),
            absl::StatusCode::kInvalidArgument)
      << "it is remembered";
}

TEST(BarriersTest, NodeThatIsNoRankWaitsAtFewBarriers) {
  Barriers barriers;
  for (size_t i = 0; i < kMaxOpenBarriersOfNode; ++i)
    ASSERT_TRUE(barriers.Arrive(absl::StrCat("b", i), 2, 0, "client-0", Kind::kOthers).ok());
  EXPECT_TRUE(
      absl::IsResourceExhausted(barriers.Arrive("more", 2, 0, "client-0", Kind::kOthers).status()));
  EXPECT_TRUE(barriers.Arrive("b0", 2, 0, "client-0", Kind::kOthers).ok());
  EXPECT_TRUE(barriers.Arrive("more", 2, 0, "client-1", Kind::kOthers).ok());
}

TEST(BarriersTest, FailureShowsTheNameOnly) {
  Barriers barriers;
  ASSERT_TRUE(barriers.Arrive("b", 2, 0, "client-0", Kind::kOthers).ok());
  const std::vector<Barriers::Failure> failures = barriers.FailNode("client-0", "died");
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].key, Barriers::Key(Kind::kOthers, "b"));
  EXPECT_EQ(failures[0].status.message(),
            "barrier b: party 0 (client-0) died; 1 of 2 parties had come");
}

TEST(BarriersTest, OldestClosedBarriersAreForgotten) {
  Barriers barriers;
  for (size_t i = 0; i <= kMaxClosedBarriers; ++i)
    ASSERT_TRUE(barriers.Arrive(absl::StrCat("b", i), 1, 0, "n").ok());
  // The first name denotes a new barrier; the second is still remembered.
  EXPECT_EQ(*barriers.Arrive("b0", 2, 0, "n"), Outcome::kWaiting);
  EXPECT_FALSE(barriers.Arrive("b1", 2, 0, "n").ok());
}

TEST(BarriersTest, ClosedBarriersSurviveARestart) {
  Barriers before;
  ASSERT_TRUE(before.Arrive("done", 1, 0, "worker-0").ok());
  ASSERT_TRUE(before.Arrive("failed", 2, 0, "worker-0").ok());
  ASSERT_FALSE(before.FailParty("failed", 0, "worker-0", "gave up").ok());
  ASSERT_TRUE(before.Arrive("open", 2, 0, "worker-0").ok());
  ASSERT_TRUE(before.Arrive("others", 1, 0, "client-0", Kind::kOthers).ok());
  Barriers after;
  after.Restore(before.Save());
  EXPECT_EQ(*after.Arrive("done", 1, 0, "worker-0"), Barriers::Outcome::kComplete);
  EXPECT_EQ(after.Arrive("failed", 2, 1, "worker-1").status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(*after.Arrive("others", 1, 0, "client-0", Kind::kOthers), Outcome::kComplete);
  EXPECT_EQ(*after.Arrive("others", 2, 0, "worker-0"), Outcome::kWaiting);
  EXPECT_EQ(*after.Arrive("open", 2, 1, "worker-1"), Barriers::Outcome::kWaiting)
      << "waiting parties arrive again";
  EXPECT_EQ(*after.Arrive("open", 2, 0, "worker-0"), Barriers::Outcome::kComplete);
}

}  // namespace
}  // namespace pawl
