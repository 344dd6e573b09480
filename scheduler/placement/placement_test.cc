#include "scheduler/placement/placement.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/placement/testing/placement_fixture.h"

namespace pawl {
namespace {

// Whether the server is in no set, not even as one that may have to return.
bool HoldsNothing(ServerNumber server, const Placement& placement) {
  return std::none_of(
      placement.partitions.begin(), placement.partitions.end(), [&](const ReplicaSet& set) {
        return set.InSync(server) || set.IsLearner(server) ||
               std::find(set.last_in_sync.begin(), set.last_in_sync.end(), server) !=
                   set.last_in_sync.end() ||
               std::find(set.retained.begin(), set.retained.end(), server) != set.retained.end() ||
               set.yielding == server;
      });
}

TEST(PlacementTest, FirstPlacementIsEven) {
  for (uint32_t servers = 1; servers <= 9; ++servers) {
    for (uint32_t replicas = 1; replicas <= std::min(servers, 4u); ++replicas) {
      Servers numbers;
      for (uint32_t i = 0; i < servers; ++i) numbers.push_back(10 + i);
      Placement placement = First(numbers, 256, replicas);
      EXPECT_EQ(placement.epoch, 1u);
      std::map<ServerNumber, int> primaries;
      for (const ReplicaSet& set : placement.partitions) {
        ++primaries[set.primary];
        std::set<ServerNumber> members(set.backups.begin(), set.backups.end());
        members.insert(set.primary);
        EXPECT_EQ(members.size(), replicas);
        EXPECT_EQ(set.primary_since, 1u);
      }
      ExpectEven(primaries, numbers);
      for (const auto& [server, load] : Loads(placement)) {
        EXPECT_NEAR(load, 256.0 * replicas / servers, replicas + 1) << servers << " " << replicas;
      }
    }
  }
}

TEST(PlacementTest, BackupsOfAServerAreSpreadOverAllOthers) {
  const Placement placement = First({0, 1, 2, 3}, 256, 2);
  std::map<ServerNumber, int> backups_of_first;
  for (const ReplicaSet& set : placement.partitions) {
    if (set.primary == 0) ++backups_of_first[set.backups[0]];
  }
  ExpectEven(backups_of_first, {1, 2, 3});
}

TEST(PlacementTest, FailoverPromotesTheFirstBackup) {
  Placement placement = First({0, 1, 2}, 6, 3);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1, 2}));
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.epoch, 2u);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].primary_since, 2u);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{2}));
  EXPECT_EQ(placement.partitions[1].primary, 1u);
  EXPECT_EQ(placement.partitions[1].primary_since, 1u)
      << "a lost backup does not change the primary";
  EXPECT_FALSE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.epoch, 2u);
}

TEST(PlacementTest, LastServerWithTheDataReturnsAsPrimary) {
  Placement placement = First({0, 1}, 2, 1);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_TRUE(placement.partitions[0].IsUnavailable());
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0}));
  EXPECT_FALSE(PlacementStep(AllAt({1}, 2), 1, true, placement)) << "no other server has the data";
  EXPECT_FALSE(HoldsNothing(0, placement));
  const Recovery recovery = RecoverServer(0, {0}, false, placement);
  EXPECT_TRUE(recovery.changed);
  EXPECT_TRUE(recovery.lost.empty());
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[0].primary_since, 3u);
}

TEST(PlacementTest, LastServerThatReturnsEmptyHasLostItsPartitions) {
  Placement placement = First({0, 1}, 4, 1);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(RecoverServer(0, {0, 1}, false, placement).lost, (std::vector<uint32_t>{2}));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[2].primary, kNoServer);
}

TEST(PlacementTest, DataIsHeldOnlyByAServerWithoutOtherPresentHolders) {
  Placement placement = First({0, 1, 2}, 3, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  EXPECT_TRUE(HeldOnlyBy(0, {1, 2}, placement).empty());
  EXPECT_EQ(HeldOnlyBy(0, {2}, placement), (std::vector<uint32_t>{0})) << "server 1 is not heard";
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  // Partition 2 is on servers 2 and 0, partition 0 on two absent servers.
  EXPECT_EQ(HeldOnlyBy(0, {2}, placement), (std::vector<uint32_t>{0}));
  EXPECT_EQ(HeldOnlyBy(2, {2}, placement), (std::vector<uint32_t>{1, 2}));
  RecoverServer(1, {0, 1}, false, placement);
  EXPECT_TRUE(HeldOnlyBy(0, {1, 2}, placement).empty());
}

TEST(PlacementTest, FirstServerToReturnIsPrimary) {
  Placement placement = First({0, 1, 2}, 3, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1}));
  EXPECT_EQ(placement.partitions[2].primary, 2u);
  ASSERT_TRUE(RecoverServer(1, {0, 1}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  Placement unconfirmed = placement;
  Confirm(1, placement.epoch, 1, placement);
  Confirm(2, placement.epoch, 1, placement);
  EXPECT_FALSE(RecoverServer(0, {0, 2}, false, placement).changed) << "its data may be outdated";
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  RecoverServer(0, {0, 2}, false, unconfirmed);
  EXPECT_EQ(unconfirmed.partitions[0].primary, 1u);
  EXPECT_EQ(unconfirmed.partitions[0].fallbacks, (Servers{0}))
      << "1 has acknowledged nothing without it";
}

TEST(PlacementTest, DepartedServerReplacesAnUnconfirmedPrimary) {
  Placement placement = First({0, 1}, 1, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].confirm_since, 2u);
  ASSERT_TRUE(RemoveServers({1}, {}, placement))
      << "it may have been dead before it heard of its promotion";
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1}));
  EXPECT_TRUE(RecoverServer(0, {0}, false, placement).lost.empty());
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[0].confirm_since, placement.epoch);
}

TEST(PlacementTest, FallbackReplacesAnUnconfirmedPrimaryThatDies) {
  Placement placement = First({0, 1}, 1, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  ASSERT_TRUE(RecoverServer(0, {0}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  ASSERT_TRUE(PlacementStep(AllAt({0, 1}, placement.epoch), 2, true, placement));
  EXPECT_TRUE(placement.partitions[0].IsLearner(0)) << "it keeps its data meanwhile";
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_TRUE(placement.partitions[0].learners.empty());
}

TEST(PlacementTest, NothingIsConfirmedBelowMinInSync) {
  Placement placement = First({0, 1, 2}, 1, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  RemoveServers({1}, {}, placement);
  EXPECT_FALSE(Confirm(0, placement.epoch, 2, placement).complete);
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1}))
      << "1 has everything, even if 0 is lost";
  Placement without = placement;
  ASSERT_TRUE(PlacementStep(AllAt({0, 2}, placement.epoch), 2, true, placement));
  ASSERT_TRUE(CaughtUp(0, 0, 2, placement.epoch, placement));
  EXPECT_TRUE(Confirm(0, placement.epoch, 2, placement).complete);
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 2}));
  RemoveServers({0}, {}, without);
  RecoverServer(0, {}, false, without);
  RecoverServer(1, {0}, false, without);
  EXPECT_EQ(without.partitions[0].primary, 1u);
}

TEST(PlacementTest, ServerInSyncAgainNeedsNoConfirmation) {
  Placement placement = First({0, 1}, 1, 2);
  RemoveServers({1}, {}, placement);
  RecoverServer(1, {0}, false, placement);
  ASSERT_TRUE(PlacementStep(AllAt({0, 1}, placement.epoch), 2, true, placement));
  ASSERT_TRUE(CaughtUp(0, 0, 1, placement.epoch, placement));
  EXPECT_EQ(placement.partitions[0].confirm_since, 0u);
  EXPECT_TRUE(placement.partitions[0].fallbacks.empty());
}

TEST(PlacementTest, ConfirmedDepartureExcludesTheServerAsPrimary) {
  Placement placement = First({0, 1}, 1, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  const uint64_t alone = placement.epoch;
  EXPECT_FALSE(Confirm(1, alone - 1, 1, placement).complete)
      << "it does not know yet that it is the primary";
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1}));
  EXPECT_FALSE(Confirm(0, alone, 1, placement).changed) << "it is not the primary";
  EXPECT_TRUE(Confirm(1, alone, 1, placement).complete);
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{1}));
  EXPECT_EQ(placement.epoch, alone);
  EXPECT_FALSE(Confirm(1, alone, 1, placement).changed);
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  EXPECT_FALSE(RecoverServer(0, {0}, false, placement).changed);
  EXPECT_TRUE(placement.partitions[0].IsUnavailable());
}

TEST(PlacementTest, ConfirmationDoesNotCoverALaterLoss) {
  Placement placement = First({0, 1, 2}, 1, 3);
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  const uint64_t first = placement.epoch;
  ASSERT_TRUE(RemoveServers({2}, {}, placement));
  EXPECT_FALSE(Confirm(0, first, 1, placement).complete) << "it still waits for 2, not for 1";
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1, 2}));
  EXPECT_TRUE(Confirm(0, placement.epoch, 1, placement).complete);
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0}));
}

TEST(PlacementTest, ServerThatReturnsEmptyIsNotWaitedFor) {
  Placement placement = First({0, 1}, 1, 2);
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  EXPECT_TRUE(RecoverServer(1, {}, false, placement).lost.empty()) << "0 may still have it";
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0}));
  RecoverServer(0, {0}, false, placement);
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[0].confirm_since, 0u) << "there is nothing to confirm";
}

TEST(PlacementTest, FilesAreRetainedUntilAllReplicasAreConfirmed) {
  Placement placement = First({0, 1, 2}, 1, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  RemoveServers({1}, {}, placement);
  EXPECT_EQ(placement.partitions[0].retained, (Servers{1}));
  Confirm(0, placement.epoch, 1, placement);
  EXPECT_TRUE(ReleaseRetained(AllAt({0, 2}, placement.epoch), 2, placement))
      << "the confirmation changes the routing";
  EXPECT_EQ(placement.partitions[0].confirm_since, 0u);
  EXPECT_EQ(placement.partitions[0].retained, (Servers{1})) << "only server 0 has the data";
  RecoverServer(1, {0}, false, placement);
  ASSERT_TRUE(PlacementStep(AllAt({0, 2}, placement.epoch), 2, true, placement));
  ASSERT_TRUE(CaughtUp(0, 0, 2, placement.epoch, placement));
  EXPECT_FALSE(ReleaseRetained({{0, false, placement.epoch}, {2, false, 1}}, 2, placement))
      << "2 has not been heard since";
  EXPECT_EQ(placement.partitions[0].retained, (Servers{1}));
  EXPECT_TRUE(ReleaseRetained(AllAt({0, 2}, placement.epoch), 2, placement));
  EXPECT_TRUE(placement.partitions[0].retained.empty());
}

TEST(PlacementTest, NeededReplicaIsReleasedOnlyByForce) {
  Placement placement = First({0, 1}, 2, 1);
  RemoveServers({0}, {}, placement);
  EXPECT_EQ(RetainedBy(0, placement).needed, (std::vector<uint32_t>{0}));
  EXPECT_TRUE(ReleaseServer(0, /*needed=*/false, placement).empty());
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0}));
  EXPECT_EQ(ReleaseServer(0, /*needed=*/true, placement), (std::vector<uint32_t>{0}));
  EXPECT_TRUE(HoldsNothing(0, placement));
}

TEST(PlacementTest, OnlyThePrimaryMakesALearnerABackup) {
  Placement placement = First({0, 1, 2}, 1, 2);
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  ASSERT_TRUE(PlacementStep(AllAt({0, 2}, 2), 2, true, placement));
  ASSERT_EQ(placement.partitions[0].learners.size(), 1u);
  EXPECT_EQ(placement.partitions[0].learners[0].server, 2u);
  EXPECT_EQ(placement.partitions[0].learners[0].since, 3u);
  EXPECT_FALSE(CaughtUp(0, 1, 2, 3, placement)) << "not the primary";
  EXPECT_FALSE(CaughtUp(0, 0, 1, 3, placement)) << "no learner";
  EXPECT_FALSE(CaughtUp(0, 0, 2, 2, placement)) << "from before the learner started";
  EXPECT_FALSE(CaughtUp(7, 0, 2, 3, placement)) << "no such partition";
  EXPECT_TRUE(CaughtUp(0, 0, 2, 3, placement));
  EXPECT_EQ(SetBackups(placement, 0), (Servers{2}));
  EXPECT_EQ(placement.partitions[0].primary_since, 1u);
  EXPECT_EQ(placement.epoch, 4u);
}

TEST(PlacementTest, LearnersAreBoundedForEachServer) {
  Placement placement = First({0, 1, 2}, 256, 2);
  RemoveServers({2}, {}, placement);
  ASSERT_TRUE(PlacementStep(AllAt({0, 1}, 2), 2, true, placement));
  std::map<ServerNumber, uint32_t> learns;
  for (const ReplicaSet& set : placement.partitions) {
    for (const ReplicaSet::Learner& learner : set.learners) ++learns[learner.server];
  }
  EXPECT_EQ(learns[0], kMaxLearnersPerServer);
  EXPECT_EQ(learns[1], kMaxLearnersPerServer);
  EXPECT_FALSE(PlacementStep(AllAt({0, 1}, 3), 2, true, placement)) << "they are still learning";
}

TEST(PlacementTest, ReturnedServerGetsItsShare) {
  Placement placement = First({0, 1, 2}, 240, 2);
  RemoveServers({2}, {}, placement);
  Settle(AllAt({0, 1}, 0), 2, placement);
  ExpectEven(Loads(placement), {0, 1});
  Settle(AllAt({0, 1, 2}, 0), 2, placement);
  ExpectEven(Loads(placement), {0, 1, 2});
  std::map<ServerNumber, int> primaries;
  for (const ReplicaSet& set : placement.partitions) ++primaries[set.primary];
  for (const ServerNumber server : {0u, 1u, 2u}) EXPECT_NEAR(primaries[server], 80, 16) << server;
}

TEST(PlacementTest, OnlyTheShareOfANewServerMoves) {
  Placement placement = First({0, 1, 2}, 240, 1);
  const Placement before = placement;
  Settle(AllAt({0, 1, 2, 3}, 0), 1, placement);
  ExpectEven(Loads(placement), {0, 1, 2, 3});
  int moved = 0;
  for (size_t p = 0; p < 240; ++p)
    moved += placement.partitions[p].primary != before.partitions[p].primary;
  EXPECT_EQ(moved, 60);
}

TEST(PlacementTest, HandoverWaitsUntilThePrimaryKnows) {
  Placement placement = First({0, 1}, 1, 1);
  std::vector<PlacementServer> servers = {{0, true, 1}, {1, false, 1}};
  ASSERT_TRUE(PlacementStep(servers, 1, true, placement));
  ASSERT_TRUE(CaughtUp(0, 0, 1, 2, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  ASSERT_TRUE(PlacementStep(servers, 1, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{1}));
  const uint64_t handed_over = placement.epoch;
  servers[0].adopted_epoch = handed_over - 1;
  EXPECT_FALSE(PlacementStep(servers, 1, true, placement)) << "it may still answer pulls";
  EXPECT_FALSE(HoldsNothing(0, placement));
  servers[0].adopted_epoch = handed_over;
  ASSERT_TRUE(PlacementStep(servers, 1, /*move=*/false, placement));
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].primary_since, handed_over + 1);
  EXPECT_EQ(placement.partitions[0].fallbacks, (Servers{0})) << "1 may be dead by now";
  Confirm(1, placement.epoch, 1, placement);
  ReleaseRetained(AllAt({0, 1}, placement.epoch), 1, placement);
  EXPECT_TRUE(HoldsNothing(0, placement));
}

TEST(PlacementTest, ReturnedServerGetsItsPrimariesBack) {
  Placement placement = First({0, 1}, 8, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  Confirm(1, placement.epoch, 1, placement);
  RecoverServer(0, {0, 1, 2, 3, 4, 5, 6, 7}, false, placement);
  Settle(AllAt({0, 1}, placement.epoch), 2, placement);
  ExpectEven(Primaries(placement), {0, 1});
}

TEST(PlacementTest, PrimaryThatStaysIsInSyncThroughoutItsHandover) {
  Placement placement = First({0, 1}, 4, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  Confirm(1, placement.epoch, 1, placement);
  RecoverServer(0, {0, 1, 2, 3}, false, placement);
  for (uint32_t p = 0; p < 4; ++p) {
    placement.partitions[p].learners = {{0, placement.epoch}};
    ASSERT_TRUE(CaughtUp(p, 1, 0, placement.epoch, placement));
  }
  ASSERT_TRUE(PlacementStep(AllAt({0, 1}, placement.epoch), 2, true, placement));
  const auto handing_over = std::find_if(placement.partitions.begin(), placement.partitions.end(),
                                         [](const ReplicaSet& set) { return set.yielding == 1; });
  ASSERT_NE(handing_over, placement.partitions.end());
  const uint64_t term = handing_over->primary_since;
  EXPECT_LT(term, placement.epoch) << "its backup still accepts the changes of that term";
  EXPECT_EQ(handing_over->in_sync(), 2u);
  EXPECT_TRUE(handing_over->InSync(1));
  ASSERT_TRUE(PlacementStep(AllAt({0, 1}, placement.epoch), 2, true, placement));
  EXPECT_EQ(handing_over->primary, 0u);
  EXPECT_EQ(handing_over->primary_since, placement.epoch);
  EXPECT_EQ(handing_over->backups, (Servers{1}));
  EXPECT_FALSE(handing_over->IsUnconfirmed());
  EXPECT_TRUE(handing_over->retained.empty());
}

TEST(PlacementTest, PrimaryThatStaysHandsOverOnlyToAServerThatReachesIt) {
  Placement placement = First({0, 1}, 1, 2);
  const PlacementTarget target = {.partitions = {{1, 0}}};
  const std::vector<PlacementServer> servers = AllAt({0, 1}, placement.epoch);
  EXPECT_FALSE(StepTowards(target, servers, {{1, 0}}, placement));
  EXPECT_TRUE(StepTowards(target, servers, {{0, 1}}, placement));
  EXPECT_EQ(placement.partitions[0].yielding, 0u);
}

TEST(PlacementTest, UnwritablePrimaryHandsOverToTheWantedOne) {
  Placement placement = First({0, 1, 2}, 1, 3);
  std::vector<PlacementServer> servers = AllAt({0, 1, 2}, placement.epoch);
  servers[0].writes = false;
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1, 2}));
  ASSERT_TRUE(StepTowards({.partitions = {{2, 1}}}, servers, {}, placement));
  EXPECT_EQ(SetBackups(placement, 0), (Servers{2, 1})) << "one handover is enough";
}

TEST(PlacementTest, LivingPrimaryHandsOverOnlyToASettledServer) {
  Placement placement = First({0, 1}, 1, 2);
  std::vector<PlacementServer> servers = {{0, true, 1}, {1, false, 1}};
  servers[1].settled = false;
  EXPECT_FALSE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u) << "no server would serve it until then";
  servers[1].settled = true;
  ASSERT_TRUE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{1}));
}

TEST(PlacementTest, FailoverPrefersASettledBackup) {
  Placement placement = First({0, 1, 2}, 6, 3);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1, 2}));
  Placement other = placement;
  ASSERT_TRUE(RemoveServers({0}, {1}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 2u);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{1}));
  EXPECT_EQ(placement.partitions[1].primary, 1u) << "it is alive and serves";
  ASSERT_TRUE(RemoveServers({0}, {1, 2}, other));
  EXPECT_EQ(other.partitions[0].primary, 1u) << "there is no choice";
}

// One partition on servers 0 and 1, with server 0 handing over to 1.
Placement HandingOver() {
  Placement placement = First({0, 1}, 1, 2);
  EXPECT_TRUE(PlacementStep({{0, true, 1}, {1, false, 1}}, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].yielding, 0u);
  return placement;
}

TEST(PlacementTest, DeathOfAYieldingPrimaryCompletesTheHandover) {
  Placement placement = HandingOver();
  RemoveServers({0}, {}, placement);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].yielding, kNoServer)
      << "its next incarnation has nothing to hand over";
}

TEST(PlacementTest, YieldingPrimaryReplacesItsDeadSuccessor) {
  Placement placement = HandingOver();
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u)
      << "it may still answer pulls, so no other server can be primary";
  EXPECT_EQ(placement.partitions[0].primary_since, placement.epoch);
  Confirm(0, placement.epoch, 1, placement);
  EXPECT_FALSE(RecoverServer(1, {0}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, HandoverGoesToTheSurvivingSuccessor) {
  Placement placement = First({0, 1, 2}, 1, 3);
  ASSERT_TRUE(PlacementStep({{0, true, 1}, {1, false, 1}, {2, false, 1}}, 3, true, placement));
  ASSERT_EQ(placement.partitions[0].yielding, 0u);
  const ServerNumber successor = SetBackups(placement, 0).front();
  ASSERT_TRUE(RemoveServers({successor}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_FALSE(PlacementStep({{0, true, 1}, {3 - successor, false, 1}}, 3, false, placement))
      << "0 has not heard";
  ASSERT_TRUE(
      PlacementStep({{0, true, placement.epoch}, {3 - successor, false, 1}}, 3, false, placement));
  EXPECT_EQ(placement.partitions[0].primary, 3 - successor);
}

TEST(PlacementTest, YieldingPrimaryCanReturnAfterItsSuccessorDied) {
  Placement placement = HandingOver();
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].last_in_sync, (Servers{0, 1}));
  EXPECT_TRUE(RecoverServer(0, {0}, false, placement).lost.empty());
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, DrainedServerEndsEmptyWithoutLossOfRedundancy) {
  Placement placement = First({0, 1, 2}, 60, 2);
  std::vector<PlacementServer> servers = {{0, false, 0}, {1, true, 0}, {2, false, 0}};
  for (int steps = 0; steps < 10000 && !HoldsNothing(1, placement); ++steps) {
    for (PlacementServer& server : servers) server.adopted_epoch = placement.epoch;
    PlacementStep(servers, 2, true, placement);
    for (uint32_t p = 0; p < 60; ++p) {
      const ReplicaSet set = placement.partitions[p];
      EXPECT_GE(set.backups.size() + (set.primary != kNoServer), 2u);
      for (const ReplicaSet::Learner& learner : set.learners) {
        CaughtUp(p, set.primary, learner.server, placement.epoch, placement);
      }
    }
    for (const ServerNumber server : {0u, 1u, 2u}) Confirm(server, placement.epoch, 1, placement);
  }
  EXPECT_TRUE(HoldsNothing(1, placement));
  Settle(servers, 2, placement);
  ExpectEven(Loads(placement), {0, 2});
}

TEST(PlacementTest, UnwritablePrimaryHandsOverAndUnwritableBackupLeaves) {
  Placement placement = First({0, 1, 2}, 3, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  ASSERT_EQ(SetBackups(placement, 2), (Servers{0}));
  // 2 has no data of partition 0 yet. Waiting for it would stop all pushes.
  std::vector<PlacementServer> servers = {{0, true, 1}, {1, false, 1}, {2, false, 1}};
  servers[0].writes = false;
  ASSERT_TRUE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].yielding, 0u);
  EXPECT_EQ(placement.partitions[2].primary, 2u);
  EXPECT_TRUE(SetBackups(placement, 2).empty());
  EXPECT_EQ(placement.partitions[2].fallbacks, (Servers{0})) << "its data is still needed";
  servers[0].adopted_epoch = placement.epoch;
  ASSERT_TRUE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_FALSE(placement.partitions[0].InSync(0));
}

TEST(PlacementTest, UnwritablePrimaryStaysIfNoOtherCanWrite) {
  Placement placement = First({0, 1}, 2, 2);
  std::vector<PlacementServer> servers = {{0, true, 1}, {1, true, 1}};
  for (PlacementServer& server : servers) server.writes = false;
  EXPECT_FALSE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  Placement alone = First({0, 1}, 1, 1);
  servers[1] = {1, false, 1};
  ASSERT_TRUE(PlacementStep(servers, 1, true, alone));
  EXPECT_TRUE(alone.partitions[0].IsLearner(1)) << "it still sends its data to learners";
  Placement repaired = First({0, 1}, 1, 1);
  ASSERT_TRUE(StepTowards(ComputeTarget(servers, 1, {}, repaired), servers, {}, repaired,
                          StepScope::kRepairs));
  EXPECT_TRUE(repaired.partitions[0].IsLearner(1));
}

TEST(PlacementTest, LastServerCannotBeDrained) {
  Placement placement = First({0}, 4, 1);
  EXPECT_FALSE(PlacementStep({{0, true, 1}}, 1, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, NothingMovesWhileMovesAreOff) {
  Placement placement = First({0, 1}, 4, 1);
  EXPECT_FALSE(
      PlacementStep({{0, true, 1}, {1, false, 1}, {2, false, 1}}, 1, /*move=*/false, placement));
}

}  // namespace
}  // namespace pawl
