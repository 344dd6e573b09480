// Decides which worker hosts which rank.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_
#define PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_

#include <cstdint>
#include <vector>

namespace pawl {

struct RankPlacementInput {
  // The rank has no host and needs one.
  static constexpr uint32_t kFree = 4294967295u;
  // The rank takes no part in the placement.
  static constexpr uint32_t kFixed = 4294967294u;

  // The number of workers that take ranks, numbered from 0 in the order in which they joined.
  uint32_t workers = 0;
  // By rank: the worker's number, kFree or kFixed.
  std::vector<uint32_t> hosts;
  // Ranks that have a host may move for balance.
  bool rebalance = false;
};

// Pure. Returns the worker of each rank. kFixed ranks stay kFixed, and without workers kFree ranks
// stay kFree.
//  1. Every free rank goes to a worker with the fewest ranks.
//  2. Without `rebalance` no other rank moves. With it the numbers of ranks differ by at most one,
//     and no balanced placement moves fewer ranks.
//  3. Each worker's new ranks are as contiguous as 1 and 2 allow: workers take runs in the order of
//     their present ranks, or of their joining if they have none.
std::vector<uint32_t> PlaceRanks(const RankPlacementInput& input);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_
