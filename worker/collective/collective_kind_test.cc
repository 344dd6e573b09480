#include "worker/collective/collective_kind.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

CollectiveKind Nccl(std::string gpu) {
  return {.name = "nccl", .exclusive = std::move(gpu), .make = nullptr};
}
CollectiveKind Gloo() { return {.name = "gloo", .exclusive = "", .make = nullptr}; }
std::string Both(const std::string& gpu) { return OfferOf({Nccl(gpu), Gloo()}); }

// What each member comes to.
std::vector<absl::StatusOr<std::string>> ChooseAll(const std::vector<OfferingMember>& members) {
  std::vector<absl::StatusOr<std::string>> chosen;
  for (size_t place = 0; place < members.size(); ++place)
    chosen.push_back(ChooseKind(members, place));
  return chosen;
}

TEST(CollectiveKindTest, TheFirstKindThatAllHaveIsChosenByAll) {
  for (const auto& kind :
       ChooseAll({{"worker-0", true, Both("a/0")}, {"worker-1", false, Both("a/1")}})) {
    EXPECT_EQ(*kind, "nccl");
  }
  for (const auto& kind :
       ChooseAll({{"worker-0", false, Both("a/0")}, {"worker-1", true, OfferOf({Gloo()})}})) {
    EXPECT_EQ(*kind, "gloo");
  }
  EXPECT_EQ(*ChooseKind({{"worker-0", false, OfferOf({Nccl("a/0")})}}, 0), "nccl");
}

// Summing with nobody needs nothing of a GPU's.
TEST(CollectiveKindTest, WhoIsAloneTakesTheLastOfItsKinds) {
  EXPECT_EQ(*ChooseKind({{"worker-0", false, Both("a/0")}}, 0), "gloo");
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseKind({{"worker-0", true, ""}}, 0).status()));
}

TEST(CollectiveKindTest, MembersOnOneGpuTakeTheNextKind) {
  for (const auto& kind :
       ChooseAll({{"worker-0", false, Both("a/0")}, {"worker-1", false, Both("a/0")}})) {
    EXPECT_EQ(*kind, "gloo");
  }
  // As if they were on two machines.
  EXPECT_EQ(*ChooseKind({{"worker-0", false, Both("a/0")}, {"worker-1", false, Both("b/0")}}, 1),
            "nccl");
  const auto refused = ChooseKind(
      {{"worker-0", false, OfferOf({Nccl("a/0")})}, {"worker-1", false, OfferOf({Nccl("a/0")})}},
      1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_TRUE(absl::StrContains(refused.status().message(),
                                "worker-0 and worker-1 both have a/0, which nccl needs"))
      << refused.status();
}

TEST(CollectiveKindTest, OtherVersionsOfAKindAreOtherKinds) {
  const CollectiveKind older = {.name = "nccl 2.28.3", .exclusive = "a/0", .make = nullptr};
  const CollectiveKind newer = {.name = "nccl 2.28.9", .exclusive = "b/0", .make = nullptr};
  for (const auto& kind : ChooseAll({{"worker-0", true, OfferOf({older, Gloo()})},
                                     {"worker-1", true, OfferOf({newer, Gloo()})}})) {
    EXPECT_EQ(*kind, "gloo");
  }
}

// What a user has put into the environment is in it.
TEST(CollectiveKindTest, NoTextForgesAKind) {
  const std::string forged = OfferOf({Nccl("a\nfast="), Gloo()});
  EXPECT_EQ(*ChooseKind({{"worker-0", true, forged}, {"worker-1", true, "fast=\ngloo=\n"}}, 0),
            "gloo");
}

TEST(CollectiveKindTest, WhoGetsAnotherThanItsFirstIsToldWhy) {
  const std::vector<OfferingMember> without = {{"worker-0", true, Both("a/0")},
                                               {"worker-1", true, OfferOf({Gloo()})},
                                               {"worker-2", true, OfferOf({Gloo()})}};
  EXPECT_EQ(WhyNotFirst(without, 0, "gloo"), "worker-1, worker-2 do not offer nccl");
  EXPECT_EQ(WhyNotFirst(without, 1, "gloo"), "");
  EXPECT_EQ(
      WhyNotFirst({{"worker-0", true, Both("a/0")}, {"worker-1", true, Both("a/0")}}, 1, "gloo"),
      "worker-0 and worker-1 both have a/0, which nccl needs for one of them alone");
}

TEST(CollectiveKindTest, MixedMembersAreToldWhoHasWhatAndTheFirstOneStays) {
  const auto refused = ChooseAll({{"worker-0", false, OfferOf({Gloo()})},
                                  {"worker-1", false, OfferOf({Nccl("a/0")})},
                                  {"worker-2", false, OfferOf({Gloo()})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status())) << refused[0].status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused[1].status())) << refused[1].status();
  EXPECT_TRUE(absl::IsUnavailable(refused[2].status())) << refused[2].status();
  for (const auto& each : refused) {
    for (const char* const part : {"worker-0 has gloo", "worker-1 has nccl", "--collectives"}) {
      EXPECT_TRUE(absl::StrContains(each.status().message(), part)) << each.status();
    }
  }
  EXPECT_TRUE(absl::StrContains(
      ChooseKind({{"worker-0", false, ""}, {"worker-1", false, Both("a/0")}}, 1).status().message(),
      "worker-0 has none"));
}

TEST(CollectiveKindTest, WhoJoinsOthersInVainIsRefusedAndTheyAreToTryAgain) {
  const auto refused = ChooseAll({{"worker-0", false, OfferOf({Nccl("a/1")})},
                                  {"worker-1", true, OfferOf({Gloo()})},
                                  {"worker-2", true, Both("a/0")}});
  EXPECT_TRUE(absl::IsInvalidArgument(refused[0].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[1].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[2].status()));
}

TEST(CollectiveKindTest, WhoJoinsBesideOneInVainIsNotRefused) {
  const auto refused = ChooseAll({{"worker-0", true, OfferOf({Gloo()})},
                                  {"worker-1", false, OfferOf({Nccl("a/0")})},
                                  {"worker-2", false, OfferOf({Gloo()})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(refused[1].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[2].status()));
}

// Nothing is won by waiting for each other.
TEST(CollectiveKindTest, OfMembersWithStateThatHaveNothingInCommonTheFirstOnesStay) {
  const auto refused = ChooseAll(
      {{"worker-0", true, OfferOf({Gloo()})}, {"worker-1", true, OfferOf({Nccl("a/0")})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(refused[1].status()));
}

}  // namespace
}  // namespace pawl
