// Where the replicas are to be: the decision alone.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/partition_load.h"
#include "scheduler/placement/placement.h"

namespace pawl {

struct PlacementTarget {
  // By partition: who is to have a replica, the primary first. Empty: nobody who has its data is
  // there.
  std::vector<std::vector<ServerNumber>> partitions;
  // Partitions of which two replicas are in one zone although there is more than one.
  uint32_t sharing_a_zone = 0;
};

// Pure. `replicas` of each partition, one of each on every server if they are fewer,
//  1. never two on one server, and in as many zones as possible;
//  2. on those servers on which they are, as far as possible;
//  3. the same number on each server, within one, but for servers that have a hot partition: one
//  that alone is so much
//     of what a server has on average that others are to have more of the rest;
//  4. so that bytes and keys differ by less than kTolerance, as far as exchanging partitions can
//  bring that about;
//  5. and as many primaries on each, within one or kTolerance, hot ones counted in the same way.
// What is being copied counts as if it were done, and is not changed. From the target itself, with
// the same loads, there is nothing to change. REQUIRES: `servers` ascending.
PlacementTarget ComputeTarget(const std::vector<PlacementServer>& servers, uint32_t replicas,
                              const PartitionLoads& loads, const Placement& placement);

// The first placement of `partitions` empty partitions: PlaceFirst, but in different zones.
// REQUIRES: placement empty, nobody drains.
void PlaceFirstInZones(const std::vector<PlacementServer>& servers, uint32_t partitions,
                       uint32_t replicas, Placement& placement);

// The largest share of the bytes, or of the keys, that one server has, relative to the mean: 1 is
// perfect.
double Imbalance(const std::vector<PlacementServer>& servers, const PartitionLoads& loads,
                 const PlacementTarget& target);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_
