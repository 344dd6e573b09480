#include "worker/collective/collective_kind.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

CollectiveKind Nccl(std::string gpu) { return {.name = "nccl", .exclusive = std::move(gpu), .make = nullptr}; }
CollectiveKind Gloo() { return {.name = "gloo", .exclusive = "", .make = nullptr}; }
std::string Both(const std::string& gpu) { return OfferOf({Nccl(gpu), Gloo()}); }

// What each member comes to.
std::vector<absl::StatusOr<std::string>> ChooseAll(const std::vector<OfferingMember>& members) {
  std::vector<absl::StatusOr<std::string>> chosen;
  for (size_t place = 0; place < members.size(); ++place) chosen.push_back(ChooseKind(members, place));
  return chosen;
}

TEST(CollectiveKindTest, TheFirstKindThatAllHaveIsChosenByAll) {
  for (const auto& kind : ChooseAll({{"worker-0", true, Both("a/0")}, {"worker-1", false, Both("a/1")}})) {
    EXPECT_EQ(*kind, "nccl");
  }
  for (const auto& kind : ChooseAll({{"worker-0", false, Both("a/0")}, {"worker-1", true, OfferOf({Gloo()})}})) {
    EXPECT_EQ(*kind, "gloo");
  }
  EXPECT_EQ(*ChooseKind({{"worker-0", false, OfferOf({Nccl("a/0")})}}, 0), "nccl");
}

TEST(CollectiveKindTest, MembersOnOneGpuTakeTheNextKind) {
  for (const auto& kind : ChooseAll({{"worker-0", false, Both("a/0")}, {"worker-1", false, Both("a/0")}})) {
    EXPECT_EQ(*kind, "gloo");
  }
  // As if they were on two machines.
  EXPECT_EQ(*ChooseKind({{"worker-0", false, Both("a/0")}, {"worker-1", false, Both("b/0")}}, 1), "nccl");
  const auto refused =
      ChooseKind({{"worker-0", false, OfferOf({Nccl("a/0")})}, {"worker-1", false, OfferOf({Nccl("a/0")})}}, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  for (const char* const part : {"worker-0 and worker-1 have the same GPU", "NCCL_HOSTID"}) {
    EXPECT_TRUE(absl::StrContains(refused.status().message(), part)) << refused.status();
  }
}

TEST(CollectiveKindTest, MixedMembersAreRefusedSayingWhoHasWhat) {
  for (const auto& refused :
       ChooseAll({{"worker-0", false, OfferOf({Gloo()})}, {"worker-1", false, OfferOf({Nccl("a/0")})}})) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
    for (const char* const part : {"worker-0 has gloo", "worker-1 has nccl", "--collectives"}) {
      EXPECT_TRUE(absl::StrContains(refused.status().message(), part)) << refused.status();
    }
  }
  EXPECT_TRUE(absl::StrContains(
      ChooseKind({{"worker-0", false, ""}, {"worker-1", false, Both("a/0")}}, 1).status().message(), "worker-0 has none"));
}

TEST(CollectiveKindTest, WhoJoinsOthersInVainIsRefusedAndTheyAreToTryAgain) {
  const auto refused = ChooseAll(
      {{"worker-0", true, OfferOf({Gloo()})}, {"worker-1", true, Both("a/0")}, {"worker-2", false, OfferOf({Nccl("a/1")})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[1].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(refused[2].status()));
  // Those with state have nothing in common either: nothing is won by waiting.
  EXPECT_TRUE(absl::IsInvalidArgument(
      ChooseKind({{"worker-0", true, OfferOf({Gloo()})}, {"worker-1", true, OfferOf({Nccl("a/0")})}}, 0).status()));
}

}  // namespace
}  // namespace pawl
