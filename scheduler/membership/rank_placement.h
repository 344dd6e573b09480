// The decision which worker hosts which rank.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_
#define PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_

#include <cstdint>
#include <vector>

namespace pawl {

struct RankPlacementInput {
  // Nobody has the rank, and somebody is to get it.
  static constexpr uint32_t kFree = 4294967295u;
  // The rank is none of this decision's.
  static constexpr uint32_t kFixed = 4294967294u;

  // Those that take ranks, numbered from 0 in the order in which they joined.
  uint32_t workers = 0;
  // By rank: the worker's number, kFree or kFixed.
  std::vector<uint32_t> hosts;
  // Ranks that have a host move too, where that balances.
  bool rebalance = false;
};

// Pure. The worker of each rank; kFixed ones stay so, and without workers kFree ones too.
//
// 1. Every free rank gets a worker, and as long as nothing else balances better the one with the
// fewest.
// 2. Without `rebalance` no other rank moves. With it the numbers of ranks differ by at most one,
// and no balanced
//    placement moves fewer.
// 3. What a worker gets is as contiguous as 1 and 2 allow: runs in the order of the workers'
// present ranks, and of their
//    joining where they have none.
std::vector<uint32_t> PlaceRanks(const RankPlacementInput& input);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_RANK_PLACEMENT_H_
