// The way from where the replicas are to where they are to be, in small steps.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_target.h"

namespace pawl {

// Learners that one server may be, and that one server may have to feed, at a time: repair shares
// disk and network with the training.
inline constexpr uint32_t kMaxLearnersPerServer = 8;
// Primaries that hand over at one time: nobody serves those partitions meanwhile.
inline constexpr uint32_t kMaxHandovers = 16;

// Primaries, and who takes nothing of what they send.
using SilentPairs = std::set<std::pair<ServerNumber, ServerNumber>>;

// What is to be done yet.
struct MovesLeft {
  // Partitions and servers that get a replica of them, in both vectors at the same place.
  std::vector<uint32_t> partitions;
  std::vector<ServerNumber> servers;
  // Of those, being copied now.
  uint32_t under_way = 0;
  // Primaries that change.
  uint32_t handovers = 0;
};

// All functions are pure but for `placement`, keep its invariants
// (scheduler/placement/placement.h), and return whether they have changed it.

// Completes what does not wait for anything: a former primary that has heard that it is none, or is
// dead, is followed by the first backup.
bool CompleteHandovers(const std::vector<PlacementServer>& servers, Placement& placement);

// Where a server in sync cannot write its log and another one can, the former leaves, as the
// primary by handing over. Then lets as many learners begin and as many primaries hand over as may
// at one time, first where replicas are missing, then where servers drain, then for balance; and
// drops what is superfluous. The number of replicas in sync never falls below what it is or is to
// be. A living primary hands over only to who is settled, and no learner begins that does not hear
// its primary. REQUIRES: `servers` has the primary, backups and learners of every set, ascending;
// the target is of these servers.
bool StepTowards(const PlacementTarget& target, const std::vector<PlacementServer>& servers,
                 const SilentPairs& silent, Placement& placement);

MovesLeft LeftToMove(const PlacementTarget& target, const Placement& placement);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_STEP_H_
