#include "tests/chaos/storm/storm_plan.h"

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

StormPlanOptions Options(uint64_t seed) {
  StormPlanOptions options;
  options.seed = seed;
  options.kinds = AllFaultKinds();
  options.failpoints = {"log.synced", "ack.sending"};
  return options;
}

std::vector<std::string> Faults(const StormPlanOptions& options, int count) {
  auto plan = StormPlan::Create(options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<std::string> faults;
  for (int i = 0; i < count; ++i) faults.push_back(plan->Next().ToString());
  return faults;
}

TEST(StormPlanTest, SeedDeterminesTheStorm) {
  EXPECT_EQ(Faults(Options(7), 200), Faults(Options(7), 200));
  EXPECT_NE(Faults(Options(7), 200), Faults(Options(8), 200));
}

TEST(StormPlanTest, EachKindOccursOnceBeforeAnyRepeats) {
  auto plan = StormPlan::Create(Options(3));
  ASSERT_TRUE(plan.ok());
  for (int round = 0; round < 20; ++round) {
    std::set<FaultKind> kinds;
    for (size_t i = 0; i < AllFaultKinds().size(); ++i) kinds.insert(plan->Next().kind);
    EXPECT_EQ(kinds.size(), AllFaultKinds().size());
  }
}

TEST(StormPlanTest, FaultsRespectTheClusterAndTheLimits) {
  StormPlanOptions options = Options(11);
  options.servers = 2;
  options.senders = 1;
  options.max_scheduler_away = std::chrono::milliseconds(2500);
  options.max_silence = std::chrono::milliseconds(700);
  auto plan = StormPlan::Create(options);
  ASSERT_TRUE(plan.ok());
  std::map<FaultKind, std::set<std::string>> victims;
  for (int i = 0; i < 2000; ++i) {
    const Fault fault = plan->Next();
    victims[fault.kind].insert(fault.victim);
    EXPECT_TRUE(fault.peer.empty() || fault.peer != fault.victim);
    if (fault.kind == FaultKind::kSchedulerKill) {
      EXPECT_GE(fault.lasts, std::chrono::seconds(1));
      EXPECT_LE(fault.lasts, std::chrono::milliseconds(2500));
    }
    if (fault.kind == FaultKind::kLinkSilence || fault.kind == FaultKind::kLinkPartition ||
        fault.kind == FaultKind::kLinkBlackHole) {
      EXPECT_LE(fault.lasts, std::chrono::milliseconds(700));
    }
    if (fault.kind == FaultKind::kSenderCrashInPush) {
      EXPECT_GE(fault.ballast_bytes, 8u << 20);
      EXPECT_LE(fault.ballast_bytes, 64u << 20);
    }
  }
  EXPECT_EQ(victims[FaultKind::kServerKill], (std::set<std::string>{"server-0", "server-1"}));
  EXPECT_EQ(victims[FaultKind::kSenderKill], (std::set<std::string>{"sender-0"}));
  EXPECT_EQ(victims[FaultKind::kLinkSilence],
            (std::set<std::string>{"scheduler", "server-0", "server-1"}));
}

// Not a storm without the kinds that its options name.
TEST(StormPlanTest, FaultsThatCannotHappenAreRefused) {
  StormPlanOptions options = Options(1);
  options.failpoints.clear();
  EXPECT_EQ(StormPlan::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Options(1);
  options.servers = 1;
  EXPECT_EQ(StormPlan::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StormPlanTest, FaultNamesRoundTrip) {
  for (const FaultKind kind : AllFaultKinds()) {
    const auto parsed = ParseFaultKinds(FaultName(kind));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, std::vector<FaultKind>{kind});
  }
  EXPECT_EQ(ParseFaultKinds("link-delay,server-kill,link-delay")->size(), 2u);
  EXPECT_EQ(ParseFaultKinds("server-kill,earthquake").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
