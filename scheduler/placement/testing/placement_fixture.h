// Helpers for placement tests: the scheduler's steps, and checks of how even a placement is.
#ifndef PAWL_SCHEDULER_PLACEMENT_TESTING_PLACEMENT_FIXTURE_H_
#define PAWL_SCHEDULER_PLACEMENT_TESTING_PLACEMENT_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_step.h"
#include "scheduler/placement/placement_target.h"

namespace pawl {

using Servers = std::vector<ServerNumber>;

// The scheduler's work after every event.
inline bool PlacementStep(const std::vector<PlacementServer>& servers, uint32_t replicas, bool move,
                          Placement& placement) {
  bool completed = CompleteHandovers(servers, placement);
  completed |= ReleaseRetained(servers, replicas, placement);
  return (move &&
          StepTowards(ComputeTarget(servers, replicas, {}, placement), servers, {}, placement)) ||
         completed;
}

inline std::vector<PlacementServer> AllAt(const Servers& servers, uint64_t epoch) {
  std::vector<PlacementServer> all;
  for (const ServerNumber server : servers) all.push_back({server, false, epoch});
  return all;
}

inline Placement First(const Servers& servers, uint32_t partitions, uint32_t replicas) {
  Placement placement;
  PlaceFirst(servers, partitions, replicas, placement);
  return placement;
}

inline Servers SetBackups(const Placement& placement, uint32_t partition) {
  return placement.partitions[partition].backups;
}

// Steps, confirms and lets every learner catch up until nothing changes. Returns the steps.
inline int Settle(const std::vector<PlacementServer>& servers, uint32_t replicas,
                  Placement& placement) {
  int steps = 0;
  for (bool changed = true; changed; ++steps) {
    std::vector<PlacementServer> present = servers;
    for (PlacementServer& server : present) server.adopted_epoch = placement.epoch;
    changed = PlacementStep(present, replicas, true, placement);
    for (const PlacementServer& server : present)
      changed |= Confirm(server.number, placement.epoch, 1, placement).changed;
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

inline std::map<ServerNumber, int> Loads(const Placement& placement) {
  std::map<ServerNumber, int> loads;
  for (const ReplicaSet& set : placement.partitions) {
    ++loads[set.primary];
    for (const ServerNumber backup : set.backups) ++loads[backup];
  }
  return loads;
}

inline std::map<ServerNumber, int> Primaries(const Placement& placement) {
  std::map<ServerNumber, int> primaries;
  for (const ReplicaSet& set : placement.partitions) ++primaries[set.primary];
  return primaries;
}

inline void ExpectEven(const std::map<ServerNumber, int>& loads, const Servers& servers) {
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
    EXPECT_NE(std::find(servers.begin(), servers.end(), server), servers.end())
        << server << " has " << load;
  }
}

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_TESTING_PLACEMENT_FIXTURE_H_
