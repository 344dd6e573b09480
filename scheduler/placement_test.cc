#include "scheduler/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/placement_step.h"
#include "scheduler/placement_target.h"

namespace pawl {
namespace {

using Servers = std::vector<ServerNumber>;

// What the scheduler does whenever something has happened.
bool PlacementStep(const std::vector<PlacementServer>& servers, uint32_t replicas, bool move, Placement& placement) {
  const bool completed = CompleteHandovers(servers, placement);
  return (move && StepTowards(ComputeTarget(servers, replicas, {}, placement), servers, {}, placement)) || completed;
}

std::vector<PlacementServer> AllAt(const Servers& servers, uint64_t epoch) {
  std::vector<PlacementServer> all;
  for (const ServerNumber server : servers) all.push_back({server, false, epoch});
  return all;
}

Placement First(const Servers& servers, uint32_t partitions, uint32_t replicas) {
  Placement placement;
  PlaceFirst(servers, partitions, replicas, placement);
  return placement;
}

Servers SetBackups(const Placement& placement, uint32_t partition) { return placement.partitions[partition].backups; }

// Steps, and lets every learner catch up, until nothing changes.
int Settle(const std::vector<PlacementServer>& servers, uint32_t replicas, Placement& placement) {
  int steps = 0;
  for (bool changed = true; changed; ++steps) {
    std::vector<PlacementServer> present = servers;
    for (PlacementServer& server : present) server.adopted_epoch = placement.epoch;
    changed = PlacementStep(present, replicas, true, placement);
    for (uint32_t p = 0; p < placement.partitions.size(); ++p) {
      const ReplicaSet set = placement.partitions[p];
      for (const ReplicaSet::Learner& learner : set.learners) {
        changed |= CaughtUp(p, set.primary, learner.server, placement.epoch, placement);
      }
    }
    if (steps > 100000) ADD_FAILURE() << "does not settle";
    if (steps > 100000) return steps;
  }
  return steps;
}

std::map<ServerNumber, int> Loads(const Placement& placement) {
  std::map<ServerNumber, int> loads;
  for (const ReplicaSet& set : placement.partitions) {
    ++loads[set.primary];
    for (const ServerNumber backup : set.backups) ++loads[backup];
  }
  return loads;
}

void ExpectEven(const std::map<ServerNumber, int>& loads, const Servers& servers) {
  int least = INT32_MAX;
  int most = 0;
  for (const ServerNumber server : servers) {
    const auto it = loads.find(server);
    const int load = it == loads.end() ? 0 : it->second;
    least = std::min(least, load);
    most = std::max(most, load);
  }
  EXPECT_LE(most - least, 1);
  for (const auto& [server, load] : loads) {
    EXPECT_NE(std::find(servers.begin(), servers.end(), server), servers.end()) << server << " has " << load;
  }
}

TEST(PlacementTest, FirstPlacementIsEvenInPrimariesAndNearlyInReplicas) {
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

TEST(PlacementTest, BackupsOfOneServerAreSpreadOverAllOthers) {
  const Placement placement = First({0, 1, 2, 3}, 256, 2);
  std::map<ServerNumber, int> backups_of_first;
  for (const ReplicaSet& set : placement.partitions) {
    if (set.primary == 0) ++backups_of_first[set.backups[0]];
  }
  ExpectEven(backups_of_first, {1, 2, 3});
}

TEST(PlacementTest, FailoverMakesTheFirstBackupPrimaryAndTouchesNobodyElse) {
  Placement placement = First({0, 1, 2}, 6, 3);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1, 2}));
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.epoch, 2u);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].primary_since, 2u);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{2}));
  EXPECT_EQ(placement.partitions[1].primary, 1u);
  EXPECT_EQ(placement.partitions[1].primary_since, 1u) << "its clients need not hear of a lost backup";
  EXPECT_FALSE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.epoch, 2u);
}

TEST(PlacementTest, LastHolderStaysAndIsPrimaryAgainWithItsData) {
  Placement placement = First({0, 1}, 2, 1);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_EQ(placement.partitions[0].holders, (Servers{0}));
  EXPECT_FALSE(PlacementStep(AllAt({1}, 2), 1, true, placement)) << "nobody else has the data";
  EXPECT_FALSE(HoldsNothing(0, placement));
  const Recovery recovery = RecoverServer(0, {0}, false, placement);
  EXPECT_TRUE(recovery.changed);
  EXPECT_TRUE(recovery.lost.empty());
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[0].primary_since, 3u);
}

TEST(PlacementTest, HolderThatComesBackEmptyHasLostItsPartitions) {
  Placement placement = First({0, 1}, 4, 1);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  EXPECT_EQ(RecoverServer(0, {0, 1}, false, placement).lost, (std::vector<uint32_t>{2}));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
  EXPECT_EQ(placement.partitions[2].primary, kNoServer);
}

TEST(PlacementTest, OfAllThatDiedTogetherTheFirstOneBackIsPrimary) {
  Placement placement = First({0, 1, 2}, 3, 2);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1}));
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].holders, (Servers{0, 1}));
  EXPECT_EQ(placement.partitions[2].primary, 2u);
  ASSERT_TRUE(RecoverServer(1, {0, 1}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_FALSE(RecoverServer(0, {0, 2}, false, placement).changed) << "what it has may be old by now";
  EXPECT_EQ(placement.partitions[0].primary, 1u);
}

TEST(PlacementTest, OneThatDiedBeforeTheLastIsNoHolder) {
  Placement placement = First({0, 1}, 1, 2);
  ASSERT_TRUE(RemoveServers({0}, {}, placement));
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].holders, (Servers{1}));
  EXPECT_FALSE(RecoverServer(0, {0}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
}

TEST(PlacementTest, OnlyThePresentPrimarysWordMakesALearnerABackup) {
  Placement placement = First({0, 1, 2}, 1, 2);
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  ASSERT_TRUE(PlacementStep(AllAt({0, 2}, 2), 2, true, placement));
  ASSERT_EQ(placement.partitions[0].learners.size(), 1u);
  EXPECT_EQ(placement.partitions[0].learners[0].server, 2u);
  EXPECT_EQ(placement.partitions[0].learners[0].since, 3u);
  EXPECT_FALSE(CaughtUp(0, 1, 2, 3, placement)) << "not the primary";
  EXPECT_FALSE(CaughtUp(0, 0, 1, 3, placement)) << "no learner";
  EXPECT_FALSE(CaughtUp(0, 0, 2, 2, placement)) << "of an earlier time";
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

TEST(PlacementTest, ReturnedServerGetsItsShareOfReplicasAndOfPrimaries) {
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

TEST(PlacementTest, MovingTakesNoMoreThanTheShareOfTheNewServer) {
  Placement placement = First({0, 1, 2}, 240, 1);
  const Placement before = placement;
  Settle(AllAt({0, 1, 2, 3}, 0), 1, placement);
  ExpectEven(Loads(placement), {0, 1, 2, 3});
  int moved = 0;
  for (size_t p = 0; p < 240; ++p) moved += placement.partitions[p].primary != before.partitions[p].primary;
  EXPECT_EQ(moved, 60);
}

TEST(PlacementTest, PrimaryHandsOverOnlyWhenItHasHeardThatItIsNone) {
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
  EXPECT_TRUE(HoldsNothing(0, placement));
}

TEST(PlacementTest, ALivingPrimaryHandsOverOnlyToWhoServesAtOnce) {
  Placement placement = First({0, 1}, 1, 2);
  std::vector<PlacementServer> servers = {{0, true, 1}, {1, false, 1}};
  servers[1].settled = false;
  EXPECT_FALSE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u) << "nobody would serve it until then";
  servers[1].settled = true;
  ASSERT_TRUE(PlacementStep(servers, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{1}));
}

TEST(PlacementTest, FailoverPrefersTheBackupThatServesAtOnce) {
  Placement placement = First({0, 1, 2}, 6, 3);
  ASSERT_EQ(SetBackups(placement, 0), (Servers{1, 2}));
  Placement other = placement;
  ASSERT_TRUE(RemoveServers({0}, {1}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 2u);
  EXPECT_EQ(SetBackups(placement, 0), (Servers{1}));
  EXPECT_EQ(placement.partitions[1].primary, 1u) << "it lives, and serves";
  ASSERT_TRUE(RemoveServers({0}, {1, 2}, other));
  EXPECT_EQ(other.partitions[0].primary, 1u) << "there is no choice";
}

// Of one partition on servers 0 and 1, server 0 being asked to hand over to 1.
Placement HandingOver() {
  Placement placement = First({0, 1}, 1, 2);
  EXPECT_TRUE(PlacementStep({{0, true, 1}, {1, false, 1}}, 2, true, placement));
  EXPECT_EQ(placement.partitions[0].yielding, 0u);
  return placement;
}

TEST(PlacementTest, PrimaryThatDiesWhileItHandsOverIsNotWaitedFor) {
  Placement placement = HandingOver();
  RemoveServers({0}, {}, placement);
  EXPECT_EQ(placement.partitions[0].primary, 1u);
  EXPECT_EQ(placement.partitions[0].yielding, kNoServer) << "its next life has nothing to hand over";
}

TEST(PlacementTest, PrimaryWhoseSuccessorDiesBeforeItHasHandedOverIsPrimaryAgain) {
  Placement placement = HandingOver();
  ASSERT_TRUE(RemoveServers({1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u) << "it may still answer pulls: nobody else can be";
  EXPECT_EQ(placement.partitions[0].primary_since, placement.epoch);
  EXPECT_FALSE(RecoverServer(1, {0}, false, placement).changed);
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, OneOfTwoSuccessorsDyingLeavesTheHandoverToTheOther) {
  Placement placement = First({0, 1, 2}, 1, 3);
  ASSERT_TRUE(PlacementStep({{0, true, 1}, {1, false, 1}, {2, false, 1}}, 3, true, placement));
  ASSERT_EQ(placement.partitions[0].yielding, 0u);
  const ServerNumber successor = SetBackups(placement, 0).front();
  ASSERT_TRUE(RemoveServers({successor}, {}, placement));
  EXPECT_EQ(placement.partitions[0].primary, kNoServer);
  EXPECT_FALSE(PlacementStep({{0, true, 1}, {3 - successor, false, 1}}, 3, false, placement)) << "0 has not heard";
  ASSERT_TRUE(PlacementStep({{0, true, placement.epoch}, {3 - successor, false, 1}}, 3, false, placement));
  EXPECT_EQ(placement.partitions[0].primary, 3 - successor);
}

TEST(PlacementTest, PrimaryThatDiesWithItsSuccessorIsAHolderToo) {
  Placement placement = HandingOver();
  ASSERT_TRUE(RemoveServers({0, 1}, {}, placement));
  EXPECT_EQ(placement.partitions[0].holders, (Servers{1, 0}));
  EXPECT_TRUE(RecoverServer(0, {0}, false, placement).lost.empty());
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, DrainedServerEndsWithNothingAndRedundancyIsKept) {
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
  }
  EXPECT_TRUE(HoldsNothing(1, placement));
  Settle(servers, 2, placement);
  ExpectEven(Loads(placement), {0, 2});
}

TEST(PlacementTest, LastServerCannotBeDrained) {
  Placement placement = First({0}, 4, 1);
  EXPECT_FALSE(PlacementStep({{0, true, 1}}, 1, true, placement));
  EXPECT_EQ(placement.partitions[0].primary, 0u);
}

TEST(PlacementTest, NothingIsMovedWhenTheResultIsBeingRead) {
  Placement placement = First({0, 1}, 4, 1);
  EXPECT_FALSE(PlacementStep({{0, true, 1}, {1, false, 1}, {2, false, 1}}, 1, /*move=*/false, placement));
}

// A model of servers that keep data on disk, driven by random events.
class Storm {
 public:
  Storm(uint32_t seed, uint32_t servers, uint32_t partitions, uint32_t replicas)
      : random_(seed), partitions_(partitions), replicas_(replicas), nodes_(servers), acknowledged_(partitions) {
    Servers numbers;
    for (uint32_t i = 0; i < servers; ++i) numbers.push_back(i);
    PlaceFirst(numbers, partitions, replicas, placement_);
    for (Node& node : nodes_) node.data.assign(partitions, kNone);
    for (uint32_t p = 0; p < partitions; ++p) {
      for (uint32_t s = 0; s < servers; ++s) {
        if (placement_.partitions[p].InSync(s)) nodes_[s].data[p] = 0;
      }
    }
    Check("the first placement");
  }

  void Event() {
    Node& node = nodes_[random_() % nodes_.size()];
    const auto number = static_cast<ServerNumber>(&node - nodes_.data());
    switch (random_() % 12) {
      case 0:
        node.up = false;
        break;
      case 1:
        // The leases of all that are down run out in one tick.
        Detect();
        break;
      case 2:
        if (!node.up || random_() % 4 == 0) Return(number);
        break;
      case 3:
        if (random_() % 4 == 0) node.draining = !node.draining;
        break;
      case 4:
      case 5:
        if (node.up) Adopt(number);
        break;
      case 6:
        Learn(static_cast<uint32_t>(random_() % partitions_));
        break;
      case 7:
        ReportSome();
        break;
      case 8:
      case 9:
        Push();
        break;
      default:
        Step();
        break;
    }
    Check("an event");
  }

  // Everybody is back, nothing more happens.
  void Calm() {
    calm_ = true;
    for (Node& node : nodes_) node.draining = false;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].up || !nodes_[s].known) Return(s);
    }
    Servers all;
    for (uint32_t s = 0; s < nodes_.size(); ++s) all.push_back(s);
    uint64_t epoch = 0;
    for (int round = 0; round < 10000 && epoch != placement_.epoch; ++round) {
      epoch = placement_.epoch;
      for (const ServerNumber s : all) Adopt(s);
      Step();
      for (uint32_t p = 0; p < partitions_; ++p) Learn(p);
      while (!reports_.empty()) ReportSome();
      Check("the calm");
    }
    for (const ReplicaSet& set : placement_.partitions) {
      ASSERT_NE(set.primary, kNoServer);
      ASSERT_EQ(set.backups.size() + 1, replicas_);
      ASSERT_TRUE(set.learners.empty());
      ASSERT_EQ(set.leaving, kNoServer);
    }
    ExpectEven(Loads(placement_), all);
  }

 private:
  static constexpr int64_t kNone = -1;
  struct Node {
    bool up = true;
    // The scheduler believes that it is there.
    bool known = true;
    bool draining = false;
    uint64_t adopted = 0;
    int life = 0;
    // By partition: the last push that it has.
    std::vector<int64_t> data;
  };

  struct Report {
    uint32_t partition;
    ServerNumber primary;
    int primary_life;
    ServerNumber learner;
    int learner_life;
    uint64_t adopted;
  };

  void Detect() {
    Servers dead;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].up && nodes_[s].known) dead.push_back(s);
    }
    for (const ServerNumber s : dead) nodes_[s].known = false;
    RemoveServers(dead, {static_cast<ServerNumber>(random_() % nodes_.size())}, placement_);
  }

  void Return(ServerNumber s) {
    Node& node = nodes_[s];
    if (node.known) RemoveServers({s}, {}, placement_);
    node.up = true;
    node.known = true;
    node.adopted = 0;
    ++node.life;
    std::vector<uint32_t> recovered;
    for (uint32_t p = 0; p < partitions_; ++p) {
      if (node.data[p] != kNone) recovered.push_back(p);
    }
    EXPECT_TRUE(RecoverServer(s, recovered, false, placement_).lost.empty());
    Adopt(s);
  }

  void Adopt(ServerNumber s) {
    nodes_[s].adopted = placement_.epoch;
    for (uint32_t p = 0; p < partitions_; ++p) {
      const ReplicaSet& set = placement_.partitions[p];
      // Without a primary everybody keeps what there is.
      if (set.primary != kNoServer && !set.InSync(s) && !set.Learns(s)) nodes_[s].data[p] = kNone;
    }
  }

  void Learn(uint32_t p) {
    const ReplicaSet set = placement_.partitions[p];
    if (set.primary == kNoServer || !nodes_[set.primary].up) return;
    for (const ReplicaSet::Learner& learner : set.learners) {
      if (!nodes_[learner.server].up) continue;
      nodes_[learner.server].data[p] = nodes_[set.primary].data[p];
      learned_.insert({p, learner.server, learner.since});
      reports_.push_back({p, set.primary, nodes_[set.primary].life, learner.server, nodes_[learner.server].life,
                          nodes_[set.primary].adopted});
    }
  }

  // A report that has been under way for any time; those about lives that are over are known by their incarnations.
  void ReportSome() {
    if (reports_.empty()) return;
    const size_t i = random_() % reports_.size();
    const Report report = reports_[i];
    reports_.erase(reports_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!nodes_[report.primary].known || nodes_[report.primary].life != report.primary_life) return;
    if (!nodes_[report.learner].known || nodes_[report.learner].life != report.learner_life) return;
    CaughtUp(report.partition, report.primary, report.learner, report.adopted, placement_);
  }

  void Push() {
    for (uint32_t p = 0; p < partitions_; ++p) {
      const ReplicaSet& set = placement_.partitions[p];
      if (set.primary == kNoServer) continue;
      bool all_up = nodes_[set.primary].up;
      for (const ServerNumber backup : set.backups) all_up = all_up && nodes_[backup].up;
      // The primary waits for learners that have caught up.
      Servers learned;
      for (const ReplicaSet::Learner& learner : set.learners) {
        if (!learned_.contains({p, learner.server, learner.since})) continue;
        learned.push_back(learner.server);
        all_up = all_up && nodes_[learner.server].up;
      }
      if (!all_up) continue;
      ++acknowledged_[p];
      for (const ServerNumber learner : learned) nodes_[learner].data[p] = acknowledged_[p];
      nodes_[set.primary].data[p] = acknowledged_[p];
      for (const ServerNumber backup : set.backups) nodes_[backup].data[p] = acknowledged_[p];
    }
  }

  void Step() {
    std::vector<PlacementServer> servers;
    for (uint32_t s = 0; s < nodes_.size(); ++s) {
      if (!nodes_[s].known) continue;
      servers.push_back({s, nodes_[s].draining, nodes_[s].adopted});
      servers.back().settled = calm_ || random_() % 4 != 0;
    }
    PlacementStep(servers, replicas_, true, placement_);
  }

  void Check(const std::string& after) {
    ASSERT_GE(placement_.epoch, last_epoch_);
    last_epoch_ = placement_.epoch;
    std::map<ServerNumber, uint32_t> learns;
    std::map<ServerNumber, uint32_t> feeds;
    for (uint32_t p = 0; p < partitions_; ++p) {
      SCOPED_TRACE(absl::StrCat("partition ", p, " after ", after));
      const ReplicaSet& set = placement_.partitions[p];
      Servers members = set.backups;
      if (set.primary != kNoServer) members.push_back(set.primary);
      for (const ServerNumber s : members) {
        ASSERT_EQ(nodes_[s].data[p], acknowledged_[p]) << "server " << s << " is not in sync";
        ASSERT_TRUE(nodes_[s].known);
      }
      if (members.empty()) {
        ASSERT_FALSE(set.holders.empty()) << "the last one with the data was let go";
        for (const ServerNumber s : set.holders) ASSERT_EQ(nodes_[s].data[p], acknowledged_[p]);
      } else {
        ASSERT_TRUE(set.holders.empty());
      }
      if (set.yielding != kNoServer) {
        ASSERT_EQ(set.primary, kNoServer);
        ASSERT_FALSE(set.backups.empty());
        ASSERT_TRUE(nodes_[set.yielding].known) << "nobody will hear from it";
        ASSERT_EQ(nodes_[set.yielding].data[p], acknowledged_[p]);
      }
      for (const ReplicaSet::Learner& learner : set.learners) {
        members.push_back(learner.server);
        ++learns[learner.server];
        ++feeds[set.primary];
        ASSERT_TRUE(nodes_[learner.server].known);
      }
      ASSERT_EQ(std::set<ServerNumber>(members.begin(), members.end()).size(), members.size());
      ASSERT_LE(set.primary_since, placement_.epoch);
    }
    for (const auto& [server, count] : learns) ASSERT_LE(count, kMaxLearnersPerServer) << server;
    for (const auto& [server, count] : feeds) ASSERT_LE(count, kMaxLearnersPerServer) << server;
  }

  std::mt19937 random_;
  const uint32_t partitions_;
  const uint32_t replicas_;
  std::vector<Node> nodes_;
  std::vector<int64_t> acknowledged_;
  // By partition: learners that have caught up, and since when they learn.
  std::set<std::tuple<uint32_t, ServerNumber, uint64_t>> learned_;
  std::vector<Report> reports_;
  Placement placement_;
  uint64_t last_epoch_ = 0;
  // Nobody comes back any more.
  bool calm_ = false;
};

TEST(PlacementTest, NoOrderOfDeathsReturnsAndDrainsLosesAPushAndAllEndsEven) {
  const char* const seeds = std::getenv("PAWL_PLACEMENT_SEEDS");
  const uint32_t count = seeds == nullptr ? 300 : static_cast<uint32_t>(std::atoi(seeds));
  for (uint32_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const uint32_t servers = 1 + seed % 6;
    Storm storm(seed, servers, 4 + seed % 29, 1 + seed / 6 % std::min(servers, 3u));
    for (int event = 0; event < 400; ++event) {
      storm.Event();
      if (testing::Test::HasFatalFailure()) return;
    }
    storm.Calm();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pawl
