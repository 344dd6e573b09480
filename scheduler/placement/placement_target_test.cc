#include "scheduler/placement/placement_target.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/placement/placement_step.h"

namespace pawl {
namespace {

std::vector<PlacementServer> Servers(int count, int zones = 1) {
  std::vector<PlacementServer> servers;
  for (int i = 0; i < count; ++i) {
    servers.push_back(
        {.number = static_cast<ServerNumber>(i), .zone = absl::StrCat("zone-", i % zones)});
  }
  return servers;
}

void Apply(const PlacementTarget& target, Placement& placement) {
  ++placement.epoch;
  for (size_t p = 0; p < target.partitions.size(); ++p) {
    if (target.partitions[p].empty()) continue;
    ReplicaSet set;
    set.primary = target.partitions[p][0];
    set.primary_since = 1;
    set.backups.assign(target.partitions[p].begin() + 1, target.partitions[p].end());
    placement.partitions[p] = set;
  }
}

// The replicas of the target that the placement lacks.
int Copies(const PlacementTarget& target, const Placement& placement) {
  int copies = 0;
  for (size_t p = 0; p < target.partitions.size(); ++p) {
    for (const ServerNumber server : target.partitions[p])
      copies += !placement.partitions[p].InSync(server);
  }
  return copies;
}

std::map<ServerNumber, double> Sums(const PlacementTarget& target,
                                    const std::vector<PlacementServer>& servers,
                                    const std::vector<double>& weights) {
  std::map<ServerNumber, double> sums;
  for (const PlacementServer& server : servers) {
    if (!server.draining) sums[server.number] = 0;
  }
  for (size_t p = 0; p < target.partitions.size(); ++p) {
    for (const ServerNumber server : target.partitions[p]) sums[server] += weights[p];
  }
  return sums;
}

// The largest share of the bytes, or of the keys, that one server holds, relative to the mean.
double Imbalance(const std::vector<PlacementServer>& servers, const PartitionLoads& loads,
                 const PlacementTarget& target) {
  double worst = 1;
  for (const bool bytes : {true, false}) {
    std::map<ServerNumber, double> held;
    double total = 0;
    for (size_t p = 0; p < loads.size(); ++p) {
      for (const ServerNumber server : target.partitions[p]) {
        const bool pulled = server == target.partitions[p].front();
        const double load =
            bytes ? loads[p].parameter_bytes : loads[p].keys_pushed + pulled * loads[p].keys_pulled;
        held[server] += load;
        total += load;
      }
    }
    if (total < (bytes ? kMinBytesToBalance : kMinKeysToBalance)) continue;
    for (const auto& [server, load] : held)
      worst = std::max(worst, load * static_cast<double>(servers.size()) / total);
  }
  return worst;
}

struct Cluster {
  std::vector<PlacementServer> servers;
  uint32_t replicas = 1;
  Placement placement;

  size_t eligible() const {
    return static_cast<size_t>(
        std::count_if(servers.begin(), servers.end(), [](const auto& s) { return !s.draining; }));
  }
  uint32_t wanted() const {
    return std::min<uint32_t>(replicas, static_cast<uint32_t>(eligible()));
  }
};

// The replicas of one partition in one zone.
struct ZoneBounds {
  uint32_t least = 0;
  uint32_t most = 0;
};

// Needs of any equally even placement: the replicas of each server, the replicas of a partition
// in each zone, and a lower bound of the copies.
struct Needs {
  std::map<ServerNumber, double> quotas;
  std::map<std::string, uint32_t> zone;
  std::vector<ZoneBounds> bounds;
  int copies = 0;
};

// Spreads `replicas` of a partition over zones of these sizes, as evenly as the sizes allow.
std::vector<ZoneBounds> SpreadOverZones(const std::vector<uint32_t>& servers_in_zone,
                                        uint32_t replicas) {
  uint32_t most = 0;
  for (uint32_t room = 0; room < replicas;) {
    ++most;
    room = 0;
    for (const uint32_t servers : servers_in_zone) room += std::min(servers, most);
  }
  std::vector<ZoneBounds> bounds;
  for (const uint32_t servers : servers_in_zone)
    bounds.push_back({std::min(servers, most - 1), std::min(servers, most)});
  return bounds;
}

Needs NeedsOf(const Cluster& cluster) {
  Needs needs;
  std::vector<uint32_t> servers_in_zone;
  const auto placed = static_cast<double>(
      std::count_if(cluster.placement.partitions.begin(), cluster.placement.partitions.end(),
                    [](const ReplicaSet& set) { return set.primary != kNoServer; }));
  std::map<ServerNumber, std::string> zone_of;
  for (const PlacementServer& server : cluster.servers) {
    if (server.draining) continue;
    const uint32_t zone = needs.zone.emplace(server.zone, needs.zone.size()).first->second;
    servers_in_zone.resize(needs.zone.size());
    ++servers_in_zone[zone];
    zone_of[server.number] = server.zone;
  }
  needs.bounds = SpreadOverZones(servers_in_zone, cluster.wanted());
  // All servers have the same, except where the bounds of their zone say otherwise.
  const auto held_in = [&](size_t zone, double level) {
    return std::clamp(level * servers_in_zone[zone], placed * needs.bounds[zone].least,
                      placed * needs.bounds[zone].most);
  };
  double low = 0;
  double high = placed;
  for (int halvings = 0; halvings < 100; ++halvings) {
    const double level = (low + high) / 2;
    double held = 0;
    for (size_t zone = 0; zone < needs.bounds.size(); ++zone) held += held_in(zone, level);
    (held < placed * cluster.wanted() ? low : high) = level;
  }
  for (const auto& [server, zone] : zone_of)
    needs.quotas[server] =
        held_in(needs.zone.at(zone), high) / servers_in_zone[needs.zone.at(zone)];
  int by_partition = 0;
  std::map<ServerNumber, double> has;
  for (const ReplicaSet& set : cluster.placement.partitions) {
    if (set.primary == kNoServer) continue;
    std::vector<uint32_t> here(needs.bounds.size());
    std::vector<ServerNumber> members = set.backups;
    members.push_back(set.primary);
    uint32_t stay = 0;
    for (const ServerNumber member : members) {
      if (!zone_of.contains(member)) continue;
      ++has[member];
      const uint32_t zone = needs.zone[zone_of[member]];
      if (here[zone]++ < needs.bounds[zone].most) ++stay;
    }
    by_partition +=
        static_cast<int>(cluster.wanted()) - static_cast<int>(std::min(stay, cluster.wanted()));
  }
  double too_few = 0;
  for (const auto& [server, quota] : needs.quotas)
    too_few += std::max(0.0, std::floor(quota + 1e-6) - has[server]);
  needs.copies = std::max(by_partition, static_cast<int>(too_few));
  return needs;
}

Cluster RandomCluster(std::mt19937& random) {
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Cluster cluster;
  const int count = between(1, 20);
  const int zones = between(1, 5);
  cluster.replicas = static_cast<uint32_t>(between(1, 4));
  // Zones of random sizes.
  for (int i = 0; i < count; ++i) {
    cluster.servers.push_back({.number = static_cast<ServerNumber>(i * 3),
                               .zone = absl::StrCat("zone-", between(1, zones))});
  }
  PlaceFirstInZones(cluster.servers, static_cast<uint32_t>(between(1, 300)), cluster.wanted(),
                    cluster.placement);
  // Random events after the first placement.
  for (int event = between(0, 4); event > 0; --event) {
    switch (between(0, 3)) {
      case 0:
        if (cluster.eligible() < 2) break;
        cluster
            .servers[static_cast<size_t>(between(0, static_cast<int>(cluster.servers.size()) - 1))]
            .draining = true;
        break;
      case 1: {
        if (cluster.servers.size() < 2) break;
        const auto dead =
            static_cast<size_t>(between(0, static_cast<int>(cluster.servers.size()) - 1));
        RemoveServers({cluster.servers[dead].number}, {}, cluster.placement);
        cluster.servers.erase(cluster.servers.begin() + static_cast<std::ptrdiff_t>(dead));
        break;
      }
      default:
        cluster.servers.push_back({.number = cluster.servers.back().number + 1,
                                   .zone = absl::StrCat("zone-", between(1, zones))});
    }
    if (cluster.eligible() == 0) cluster.servers[0].draining = false;
  }
  return cluster;
}

TEST(PlacementTargetTest, RandomClustersAreEvenWithFewCopies) {
  int total_copies = 0;
  int total_needed = 0;
  int uneven = 0;
  constexpr uint32_t kSeeds = 3000;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Cluster cluster = RandomCluster(random);
    const Needs needs = NeedsOf(cluster);
    const PlacementTarget target =
        ComputeTarget(cluster.servers, cluster.replicas, {}, cluster.placement);
    std::map<ServerNumber, std::string> zone_of;
    for (const PlacementServer& server : cluster.servers) {
      if (!server.draining) zone_of[server.number] = server.zone;
    }
    for (size_t p = 0; p < target.partitions.size(); ++p) {
      const std::vector<ServerNumber>& members = target.partitions[p];
      if (cluster.placement.partitions[p].primary == kNoServer) {
        ASSERT_TRUE(members.empty());
        continue;
      }
      ASSERT_EQ(members.size(), cluster.wanted());
      ASSERT_EQ(std::set<ServerNumber>(members.begin(), members.end()).size(), members.size())
          << "twice on one server";
      std::vector<uint32_t> here(needs.bounds.size());
      for (const ServerNumber member : members) {
        ASSERT_TRUE(zone_of.contains(member));
        ++here[needs.zone.at(zone_of[member])];
      }
      for (size_t zone = 0; zone < here.size(); ++zone) {
        ASSERT_GE(here[zone], needs.bounds[zone].least);
        ASSERT_LE(here[zone], needs.bounds[zone].most);
      }
    }
    const std::vector<double> ones(target.partitions.size(), 1.0);
    bool even = true;
    for (const auto& [server, load] : Sums(target, cluster.servers, ones)) {
      const double least = std::floor(needs.quotas.at(server) + 1e-6);
      const double most = std::ceil(needs.quotas.at(server) - 1e-6);
      // Where zones differ, some servers reach their number only if others pass replicas on.
      ASSERT_GE(load, least - 1) << "server " << server;
      ASSERT_LE(load, most + 1) << "server " << server;
      even &= load >= least && load <= most;
    }
    uneven += !even;
    std::map<ServerNumber, double> primaries;
    for (const auto& [server, zone] : zone_of) primaries[server] = 0;
    for (const auto& members : target.partitions) {
      if (!members.empty()) ++primaries[members.front()];
    }
    const auto [fewest_primaries, most_primaries] = std::minmax_element(
        primaries.begin(), primaries.end(), [](auto& a, auto& b) { return a.second < b.second; });
    const double mean = 1.0 * target.partitions.size() / primaries.size();
    ASSERT_LE(most_primaries->second - fewest_primaries->second, 2 * kTolerance * mean + 2);
    const int copies = Copies(target, cluster.placement);
    if (even) {
      ASSERT_GE(copies, needs.copies);
    }
    ASSERT_LE(copies, needs.copies * 1.65 + 5);
    total_copies += copies;
    total_needed += needs.copies;
    Placement after = cluster.placement;
    Apply(target, after);
    ASSERT_EQ(ComputeTarget(cluster.servers, cluster.replicas, {}, after).partitions,
              target.partitions)
        << "the target of the target differs";
  }
  EXPECT_LE(total_copies, total_needed * 1.02);
  EXPECT_LE(uneven, kSeeds / 50);
  RecordProperty("copies", total_copies);
  RecordProperty("needed", total_needed);
}

TEST(PlacementTargetTest, StepsCopyOnlyWhatTheTargetNeeds) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Cluster cluster = RandomCluster(random);
    const int expected = Copies(
        ComputeTarget(cluster.servers, cluster.replicas, {}, cluster.placement), cluster.placement);
    int copied = 0;
    int steps = 0;
    for (bool changed = true; changed; ++steps) {
      ASSERT_LT(steps, 5000) << "the steps do not end";
      for (PlacementServer& server : cluster.servers)
        server.adopted_epoch = cluster.placement.epoch;
      changed = CompleteHandovers(cluster.servers, cluster.placement);
      // Computes the target at each step, as after a restart.
      changed |=
          StepTowards(ComputeTarget(cluster.servers, cluster.replicas, {}, cluster.placement),
                      cluster.servers, {}, cluster.placement);
      for (uint32_t p = 0; p < cluster.placement.partitions.size(); ++p) {
        const ReplicaSet set = cluster.placement.partitions[p];
        for (const ReplicaSet::Learner& learner : set.learners) {
          if (random() % 2 == 0) continue;
          const bool caught_up =
              CaughtUp(p, set.primary, learner.server, cluster.placement.epoch, cluster.placement);
          copied += caught_up;
          changed |= caught_up;
        }
        changed |= !set.learners.empty();
      }
    }
    ASSERT_LE(copied, expected * 1.1 + 5);
  }
}

TEST(PlacementTargetTest, GrowingAndShrinkingCopiesTheMinimum) {
  for (const uint32_t replicas : {1u, 2u}) {
    Cluster cluster{Servers(3), replicas, {}};
    PlaceFirst({0, 1, 2}, 256, replicas, cluster.placement);
    cluster.servers = Servers(5);
    PlacementTarget target = ComputeTarget(cluster.servers, replicas, {}, cluster.placement);
    EXPECT_EQ(Copies(target, cluster.placement), static_cast<int>(2 * (256 * replicas / 5)))
        << replicas;
    Apply(target, cluster.placement);
    for (size_t i = 2; i < 5; ++i) cluster.servers[i].draining = true;
    int lost = 0;
    for (const auto& [server, load] :
         Sums(target, cluster.servers, std::vector<double>(256, 1.0))) {
      lost += server >= 2 ? static_cast<int>(load) : 0;
    }
    target = ComputeTarget(cluster.servers, replicas, {}, cluster.placement);
    EXPECT_EQ(Copies(target, cluster.placement), lost) << replicas;
  }
}

TEST(PlacementTargetTest, ReplicasGoToDifferentZones) {
  std::vector<PlacementServer> servers = {{.number = 0, .zone = "a"},
                                          {.number = 1, .zone = "b"},
                                          {.number = 2, .zone = "b"},
                                          {.number = 3, .zone = "b"}};
  Placement placement;
  PlaceFirstInZones(servers, 60, 2, placement);
  const PlacementTarget target = ComputeTarget(servers, 2, {}, placement);
  EXPECT_EQ(Copies(target, placement), 0);
  EXPECT_EQ(target.sharing_a_zone, 0u);
  const auto loads = Sums(target, servers, std::vector<double>(60, 1.0));
  EXPECT_EQ(loads.at(0), 60);
  for (ServerNumber server = 1; server < 4; ++server) EXPECT_EQ(loads.at(server), 20);
}

TEST(PlacementTargetTest, FirstReplicasInZonesAreInSyncAndConfirmed) {
  Placement placement;
  PlaceFirstInZones(Servers(6, 3), 60, 2, placement);
  for (const ReplicaSet& set : placement.partitions) {
    EXPECT_FALSE(set.IsUnconfirmed());
    EXPECT_EQ(std::set(set.last_in_sync.begin(), set.last_in_sync.end()),
              (std::set{set.primary, set.backups[0]}));
  }
}

TEST(PlacementTargetTest, ReplacedServerHandsOverOnlyItsOwnPrimaries) {
  for (const uint32_t replicas : {2, 3}) {
    std::vector<PlacementServer> servers = Servers(4);
    Placement placement;
    PlaceFirstInZones(servers, 256, replicas, placement);
    servers = Servers(5);
    servers[1].draining = true;
    const PlacementTarget target = ComputeTarget(servers, replicas, {}, placement);
    for (size_t p = 0; p < 256; ++p) {
      const ServerNumber primary = placement.partitions[p].primary;
      if (primary == 1) continue;
      EXPECT_EQ(target.partitions[p].front(), primary) << p;
    }
  }
}

TEST(PlacementTargetTest, TargetCountsPartitionsThatShareAZone) {
  const std::vector<PlacementServer> servers = Servers(4, 2);
  Placement placement;
  PlaceFirstInZones(servers, 10, 3, placement);
  EXPECT_EQ(ComputeTarget(servers, 3, {}, placement).sharing_a_zone, 10u);
  EXPECT_EQ(ComputeTarget(Servers(4, 1), 3, {}, placement).sharing_a_zone, 0u)
      << "with one zone there is nothing to share";
}

PartitionLoads Alike(size_t partitions) {
  return PartitionLoads(partitions, {1 << 20, 1000, 1000});
}

std::vector<double> Keys(const PartitionLoads& loads) {
  std::vector<double> keys;
  for (const PartitionLoad& load : loads)
    keys.push_back(static_cast<double>(load.keys_pushed + load.keys_pulled));
  return keys;
}

TEST(PlacementTargetTest, ServerOfAHotPartitionHoldsFewerOthers) {
  const std::vector<PlacementServer> servers = Servers(4);
  Placement placement;
  PlaceFirst({0, 1, 2, 3}, 256, 1, placement);
  PartitionLoads loads = Alike(256);
  // A fifth of the total.
  loads[5].keys_pulled = 128000 - 1000;
  const std::vector<double> keys = Keys(loads);
  double total = 0;
  for (const double k : keys) total += k;
  Placement after = placement;
  const PlacementTarget target = ComputeTarget(servers, 1, loads, placement);
  EXPECT_EQ(target.partitions[5].front(), 1u) << "the hot partition itself stays";
  for (const auto& [server, sum] : Sums(target, servers, keys))
    EXPECT_NEAR(sum, total / 4, total / 4 * 0.1) << server;
  EXPECT_LT(Imbalance(servers, loads, target), 1.4);
  Apply(target, after);
  EXPECT_EQ(ComputeTarget(servers, 1, loads, after).partitions, target.partitions);
}

TEST(PlacementTargetTest, HotPartitionsGoToDifferentServers) {
  const std::vector<PlacementServer> servers = Servers(4);
  Placement placement;
  PlaceFirst({0, 1, 2, 3}, 256, 1, placement);
  PartitionLoads loads = Alike(256);
  loads[4].keys_pushed = loads[8].keys_pushed = 60000;
  const PlacementTarget target = ComputeTarget(servers, 1, loads, placement);
  EXPECT_NE(target.partitions[4].front(), target.partitions[8].front());
  EXPECT_LT(Imbalance(servers, loads, target), 1.4);
}

// When the second becomes hot, its server already holds few others beside the first.
TEST(PlacementTargetTest, SecondHotPartitionOfAServerMovesAway) {
  struct Case {
    int servers;
    uint32_t replicas;
    uint64_t times;
  };
  for (const auto& [count, replicas, times] : {Case{4, 1, 18}, Case{2, 2, 60}}) {
    SCOPED_TRACE(replicas);
    const std::vector<PlacementServer> servers = Servers(count);
    std::vector<ServerNumber> numbers;
    for (const PlacementServer& server : servers) numbers.push_back(server.number);
    Placement placement;
    PlaceFirst(numbers, 64, replicas, placement);
    PartitionLoads loads(64, {100, 10, 10000});
    loads[0].keys_pulled *= times;
    Apply(ComputeTarget(servers, replicas, loads, placement), placement);
    uint32_t second = 1;
    while (placement.partitions[second].primary != placement.partitions[0].primary) ++second;
    loads[second].keys_pulled *= times;
    const PlacementTarget target = ComputeTarget(servers, replicas, loads, placement);
    EXPECT_NE(target.partitions[0].front(), target.partitions[second].front());
    EXPECT_LT(Imbalance(servers, loads, target), 1.1);
    Apply(target, placement);
    EXPECT_EQ(ComputeTarget(servers, replicas, loads, placement).partitions, target.partitions);
  }
}

TEST(PlacementTargetTest, HotPartitionDoesNotDisplaceNegligibleLoad) {
  for (const double hot_share : {0.85, 0.92, 0.99}) {
    SCOPED_TRACE(hot_share);
    Placement placement;
    PlaceFirst({0, 1, 2, 3}, 64, 2, placement);
    PartitionLoads loads(64, {10 << 20, 1000, 0});
    loads[0].keys_pushed = static_cast<uint64_t>(63000 * hot_share / (1 - hot_share));
    const std::vector<PlacementServer> servers = Servers(5);
    const PlacementTarget target = ComputeTarget(servers, 2, loads, placement);
    for (const auto& [server, held] : Sums(target, servers, std::vector<double>(64, 1.0)))
      EXPECT_NEAR(held, 128 / 5.0, 1.0) << "server " << server;
  }
}

TEST(PlacementTargetTest, HotPartitionsWithNearlyAllLoadAreSeparated) {
  const std::vector<PlacementServer> servers = Servers(4);
  Placement placement;
  PlaceFirst({0, 1, 2, 3}, 64, 1, placement);
  PartitionLoads loads(64, {10 << 20, 1000, 0});
  // All on server 0.
  for (const uint32_t p : {0, 4, 8, 12}) loads[p].keys_pushed = 400000;
  const PlacementTarget target = ComputeTarget(servers, 1, loads, placement);
  EXPECT_LT(Imbalance(servers, loads, target), 1.1);
  for (const auto& [server, held] : Sums(target, servers, std::vector<double>(64, 1.0)))
    EXPECT_NEAR(held, 16, 1.0) << "server " << server;
}

TEST(PlacementTargetTest, TargetOfATargetWithHotPartitionsIsTheSame) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    Cluster cluster = RandomCluster(random);
    PartitionLoads loads = Alike(cluster.placement.partitions.size());
    for (int round = 0; round < 3; ++round) {
      PartitionLoad& load = loads[random() % loads.size()];
      load.keys_pushed *= 1 + random() % 40;
      load.keys_pulled *= 1 + random() % 100;
      load.parameter_bytes *= 1 + random() % 10;
      const PlacementTarget target =
          ComputeTarget(cluster.servers, cluster.replicas, loads, cluster.placement);
      Apply(target, cluster.placement);
      ASSERT_EQ(
          ComputeTarget(cluster.servers, cluster.replicas, loads, cluster.placement).partitions,
          target.partitions);
    }
  }
}

TEST(PlacementTargetTest, BytesAndKeysAreBalanced) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int count = 2 + static_cast<int>(random() % 9);
    const auto replicas = static_cast<uint32_t>(1 + random() % std::min(3, count));
    std::vector<PlacementServer> servers = Servers(count);
    std::vector<ServerNumber> numbers;
    for (const PlacementServer& server : servers) numbers.push_back(server.number);
    Placement placement;
    PlaceFirst(numbers, 256, replicas, placement);
    PartitionLoads loads(256);
    std::lognormal_distribution<double> some(0, 0.6);
    std::vector<double> bytes;
    std::vector<double> keys;
    for (PartitionLoad& load : loads) {
      load.parameter_bytes = static_cast<uint64_t>(some(random) * (1 << 20));
      load.keys_pushed = static_cast<uint64_t>(some(random) * 1000);
      bytes.push_back(static_cast<double>(load.parameter_bytes));
      keys.push_back(static_cast<double>(load.keys_pushed));
    }
    const PlacementTarget target = ComputeTarget(servers, replicas, loads, placement);
    for (const std::vector<double>& weights : {bytes, keys}) {
      double mean = 0;
      double largest = 0;
      for (const double weight : weights) {
        mean += weight * replicas / count;
        largest = std::max(largest, weight);
      }
      for (const auto& [server, sum] : Sums(target, servers, weights)) {
        ASSERT_NEAR(sum, mean, std::max(largest, mean * 0.16)) << "server " << server;
      }
    }
    Placement after = placement;
    Apply(target, after);
    ASSERT_EQ(ComputeTarget(servers, replicas, loads, after).partitions, target.partitions);
  }
}

// A joining server gets partitions that balance the loads, so few others are copied for that.
TEST(PlacementTargetTest, JoinerBalancesLoadsWithFewExtraCopies) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const int count = 2 + static_cast<int>(random() % 4);
    const auto replicas = static_cast<uint32_t>(1 + random() % 2);
    PartitionLoads loads(64);
    std::lognormal_distribution<double> some(0, 0.3);
    for (PartitionLoad& load : loads) {
      load.parameter_bytes = static_cast<uint64_t>(some(random) * (4 << 20));
      load.keys_pushed = static_cast<uint64_t>(some(random) * 10000);
    }
    std::vector<ServerNumber> numbers;
    for (const PlacementServer& server : Servers(count)) numbers.push_back(server.number);
    Placement placement;
    PlaceFirst(numbers, 64, replicas, placement);
    Apply(ComputeTarget(Servers(count), replicas, loads, placement), placement);
    const PlacementTarget target = ComputeTarget(Servers(count + 1), replicas, loads, placement);
    const int share = static_cast<int>(64 * replicas) / (count + 1);
    EXPECT_LE(Copies(target, placement), share + share / 5 + 1);
  }
}

TEST(PlacementTargetTest, SmallTablesAreNotBalanced) {
  const std::vector<PlacementServer> servers = Servers(4);
  Placement placement;
  PlaceFirst({0, 1, 2, 3}, 256, 2, placement);
  const PlacementTarget before = ComputeTarget(servers, 2, {}, placement);
  PartitionLoads loads(256, {100, 1, 1});
  loads[3] = {5000, 300, 300};
  EXPECT_EQ(ComputeTarget(servers, 2, loads, placement).partitions, before.partitions);
}

TEST(PlacementTargetTest, HotPrimariesGoToDifferentServers) {
  const std::vector<PlacementServer> servers = Servers(2);
  Placement placement;
  PlaceFirst({0, 1}, 64, 2, placement);
  PartitionLoads loads(64, {1 << 20, 10, 1000});
  // The primary of both is server 0. Only reads are hot.
  loads[2].keys_pulled = loads[4].keys_pulled = 20000;
  const PlacementTarget target = ComputeTarget(servers, 2, loads, placement);
  EXPECT_EQ(Copies(target, placement), 0);
  EXPECT_NE(target.partitions[2].front(), target.partitions[4].front());
}

TEST(PlacementTargetTest, ReturnedServerGetsPrimariesWithoutCopying) {
  const std::vector<PlacementServer> servers = Servers(2);
  Placement placement;
  PlaceFirst({0, 1}, 64, 2, placement);
  RemoveServers({1}, {}, placement);
  for (ReplicaSet& set : placement.partitions) set.backups = {1};
  const PlacementTarget target = ComputeTarget(servers, 2, {}, placement);
  EXPECT_EQ(Copies(target, placement), 0);
  int primaries = 0;
  for (const auto& members : target.partitions) primaries += members.front() == 1;
  EXPECT_EQ(primaries, 32);
}

TEST(PlacementTargetTest, ThousandServersStayEvenAfterLosingARack) {
  std::vector<PlacementServer> servers = Servers(1000, 25);
  Placement placement;
  PlaceFirstInZones(servers, 16384, 2, placement);
  std::vector<ServerNumber> dead;
  std::vector<PlacementServer> alive;
  for (const PlacementServer& server : servers) {
    if (server.zone == "zone-7") {
      dead.push_back(server.number);
    } else {
      alive.push_back(server);
    }
  }
  RemoveServers(dead, {}, placement);
  const PlacementTarget target = ComputeTarget(alive, 2, {}, placement);
  EXPECT_EQ(target.sharing_a_zone, 0u);
  const auto loads = Sums(target, alive, std::vector<double>(16384, 1.0));
  for (const auto& [server, load] : loads) EXPECT_NEAR(load, 2 * 16384.0 / 960, 1.0);
}

}  // namespace
}  // namespace pawl
