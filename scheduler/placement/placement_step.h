// Small steps from the present placement towards its target.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_target.h"

namespace pawl {

// Learners per server, and learners per primary, at a time: repair shares disk and network with
// training.
inline constexpr uint32_t kMaxLearnersPerServer = 8;
// Primaries that hand over at a time. Their partitions are not served meanwhile.
inline constexpr uint32_t kMaxHandovers = 16;

// (primary, follower): the follower accepts nothing that the primary sends.
using SilentPairs = std::set<std::pair<ServerNumber, ServerNumber>>;

// The moves between a placement and its target.
struct MovesLeft {
  // The partition of each replica to copy.
  std::vector<uint32_t> partitions;
  // The number that is being copied now.
  uint32_t in_progress = 0;
  // Changes of primary.
  uint32_t handovers = 0;
};

// All functions change only `placement`, keep its invariants (scheduler/placement/placement.h), and
// return whether they changed it.

// Promotes the first backup of every partition whose yielding primary has stopped serving or is
// dead.
bool CompleteHandovers(const std::vector<PlacementServer>& servers, Placement& placement);

// What a step may do. kRepairs: only 1, and from 3 only the learners for missing replicas and for
// primaries that cannot write.
enum class StepScope { kAll, kRepairs };

// Takes one step:
//  1. A server in sync that cannot write its log leaves if another one can; a primary hands over.
//  2. Drops superfluous replicas, and hands over to the target's primaries.
//  3. Starts learners within the limits: first where replicas are missing, then for draining
//     servers, then for balance.
// The number of replicas in sync never falls below both its present and its target value. A living
// primary hands over only to a settled server. No learner starts whose pair with its primary is in
// `silent`. REQUIRES: `servers`, ascending, has the primary, backups and learners of every set; the
// target is for these servers.
bool StepTowards(const PlacementTarget& target, const std::vector<PlacementServer>& servers,
                 const SilentPairs& silent, Placement& placement,
                 StepScope scope = StepScope::kAll);

MovesLeft RemainingMoves(const PlacementTarget& target, const Placement& placement);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_
