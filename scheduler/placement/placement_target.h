// The placement that the scheduler works towards, as a pure function of the servers, the loads of
// the partitions and the present placement.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_

#include <cstdint>
#include <vector>

#include "scheduler/placement/placement.h"

namespace pawl {

// The load of one partition on the servers that hold it.
struct PartitionLoad {
  uint64_t parameter_bytes = 0;
  // Per second. Every replica takes all pushes; only the primary answers pulls.
  uint64_t keys_pushed = 0;
  uint64_t keys_pulled = 0;
};
// By partition. Empty if the loads are unknown: all partitions then count as equal.
using PartitionLoads = std::vector<PartitionLoad>;

// Servers are balanced if their bytes and keys are about the mean, give or take this share of it.
inline constexpr double kTolerance = 0.1;
// A job with fewer bytes, or keys per second, in total is not balanced by them.
inline constexpr uint64_t kMinBytesToBalance = uint64_t{16} << 20;
inline constexpr uint64_t kMinKeysToBalance = 10000;

struct PlacementTarget {
  // By partition: the servers that should hold a replica, the primary first. Empty if no server
  // that holds the data is present.
  std::vector<std::vector<ServerNumber>> partitions;
  // Partitions with two replicas in one zone although there are several zones.
  uint32_t sharing_a_zone = 0;
  // By how much the target lowers the largest share of the bytes, or of the keys, that one server
  // holds, relative to the mean. A primary's pulls count as if all its replicas answered them.
  double relief = 0;
};

// Pure and deterministic. Each partition gets `replicas` replicas, or one per server if there are
// fewer servers:
//  1. on distinct servers, and in as many zones as possible;
//  2. where it has replicas already, as far as the other rules allow;
//  3. such that the servers' numbers of replicas differ by at most one, as far as passing one
//     replica at a time achieves that within the zones. A hot partition, one with several times the
//     median load, counts as that many partitions, unless removing the others would hardly relieve
//     its server. Several hot partitions share a server only if no move helps;
//  4. such that the bytes and keys of two servers differ by at most 2 kTolerance, as far as
//     exchanging two partitions achieves that;
//  5. with equal numbers of primaries on each server, within kTolerance and one.
// A greedy search: it makes one move at a time and stops when no move helps. A replica that is
// being copied counts as complete and stays. Idempotent: with the same loads, a placement that has
// reached its target is its own target. REQUIRES: `servers` ascending.
PlacementTarget ComputeTarget(const std::vector<PlacementServer>& servers, uint32_t replicas,
                              const PartitionLoads& loads, const Placement& placement);

// As PlaceFirst, with the replicas of each partition in different zones. REQUIRES: placement is
// empty, no server drains.
void PlaceFirstInZones(const std::vector<PlacementServer>& servers, uint32_t partitions,
                       uint32_t replicas, Placement& placement);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_TARGET_H_
