#include "worker/collective/collective_kind.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

CollectiveKind Nccl(std::string gpu) {
  return {.name = "nccl", .exclusive = std::move(gpu), .make = nullptr};
}
CollectiveKind Gloo() { return {.name = "gloo", .exclusive = "", .make = nullptr}; }
std::string Both(const std::string& gpu) { return EncodeOffer({Nccl(gpu), Gloo()}); }

// The choice of each member.
std::vector<absl::StatusOr<std::string>> ChooseAll(const std::vector<OfferingMember>& members) {
  std::vector<absl::StatusOr<std::string>> chosen;
  for (size_t place = 0; place < members.size(); ++place)
    chosen.push_back(ChooseKind(members, place));
  return chosen;
}

TEST(CollectiveKindTest, AllChooseTheFirstCommonKind) {
  for (const auto& kind :
       ChooseAll({{"worker-0", true, Both("a/0")}, {"worker-1", false, Both("a/1")}})) {
    EXPECT_EQ(*kind, "nccl");
  }
  for (const auto& kind :
       ChooseAll({{"worker-0", false, Both("a/0")}, {"worker-1", true, EncodeOffer({Gloo()})}})) {
    EXPECT_EQ(*kind, "gloo");
  }
  EXPECT_EQ(*ChooseKind({{"worker-0", false, EncodeOffer({Nccl("a/0")})}}, 0), "nccl");
}

// A single member needs no GPU to sum with others.
TEST(CollectiveKindTest, SingleMemberTakesItsLastKind) {
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
  const auto refused = ChooseKind({{"worker-0", false, EncodeOffer({Nccl("a/0")})},
                                   {"worker-1", false, EncodeOffer({Nccl("a/0")})}},
                                  1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_TRUE(absl::StrContains(refused.status().message(),
                                "worker-0 and worker-1 both have a/0, which nccl needs"))
      << refused.status();
}

TEST(CollectiveKindTest, VersionsAreDifferentKinds) {
  const CollectiveKind older = {.name = "nccl 2.28.3", .exclusive = "a/0", .make = nullptr};
  const CollectiveKind newer = {.name = "nccl 2.28.9", .exclusive = "b/0", .make = nullptr};
  for (const auto& kind : ChooseAll({{"worker-0", true, EncodeOffer({older, Gloo()})},
                                     {"worker-1", true, EncodeOffer({newer, Gloo()})}})) {
    EXPECT_EQ(*kind, "gloo");
  }
}

// The offer may contain anything from the user's environment.
TEST(CollectiveKindTest, TextCannotForgeAKind) {
  const std::string forged = EncodeOffer({Nccl("a\nfast="), Gloo()});
  EXPECT_EQ(*ChooseKind({{"worker-0", true, forged}, {"worker-1", true, "fast=\ngloo=\n"}}, 0),
            "gloo");
}

TEST(CollectiveKindTest, FallbackIsExplained) {
  const std::vector<OfferingMember> without = {{"worker-0", true, Both("a/0")},
                                               {"worker-1", true, EncodeOffer({Gloo()})},
                                               {"worker-2", true, EncodeOffer({Gloo()})}};
  EXPECT_EQ(ExplainFallback(without, 0, "gloo"), "worker-1, worker-2 do not offer nccl");
  EXPECT_EQ(ExplainFallback(without, 1, "gloo"), "");
  EXPECT_EQ(ExplainFallback({{"worker-0", true, Both("a/0")}, {"worker-1", true, Both("a/0")}}, 1,
                            "gloo"),
            "worker-0 and worker-1 both have a/0, which nccl needs exclusively");
}

TEST(CollectiveKindTest, MixedMembersLearnTheOffersAndTheFirstStays) {
  const auto refused = ChooseAll({{"worker-0", false, EncodeOffer({Gloo()})},
                                  {"worker-1", false, EncodeOffer({Nccl("a/0")})},
                                  {"worker-2", false, EncodeOffer({Gloo()})}});
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

TEST(CollectiveKindTest, UnsuitableJoinerIsRefusedAndOthersRetry) {
  const auto refused = ChooseAll({{"worker-0", false, EncodeOffer({Nccl("a/1")})},
                                  {"worker-1", true, EncodeOffer({Gloo()})},
                                  {"worker-2", true, Both("a/0")}});
  EXPECT_TRUE(absl::IsInvalidArgument(refused[0].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[1].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[2].status()));
}

TEST(CollectiveKindTest, JoinerBesideAnUnsuitableOneIsNotRefused) {
  const auto refused = ChooseAll({{"worker-0", true, EncodeOffer({Gloo()})},
                                  {"worker-1", false, EncodeOffer({Nccl("a/0")})},
                                  {"worker-2", false, EncodeOffer({Gloo()})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(refused[1].status()));
  EXPECT_TRUE(absl::IsUnavailable(refused[2].status()));
}

// The later ones would wait in vain.
TEST(CollectiveKindTest, FirstMembersStayIfThoseWithStateDisagree) {
  const auto refused = ChooseAll(
      {{"worker-0", true, EncodeOffer({Gloo()})}, {"worker-1", true, EncodeOffer({Nccl("a/0")})}});
  EXPECT_TRUE(absl::IsUnavailable(refused[0].status()));
  EXPECT_TRUE(absl::IsInvalidArgument(refused[1].status()));
}

}  // namespace
}  // namespace pawl
