#include "scheduler/membership/rank_placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pawl {
namespace {

constexpr uint32_t kFree = RankPlacementInput::kFree;

// The number of ranks for each worker. The total is shared evenly. Workers that have more ranks
// now, and among equals those that joined first, get the remainder.
std::vector<uint32_t> BalancedShares(const std::vector<uint32_t>& counts, uint32_t free) {
  const uint32_t workers = static_cast<uint32_t>(counts.size());
  const uint32_t total = std::accumulate(counts.begin(), counts.end(), free);
  std::vector<uint32_t> order(workers);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  std::vector<uint32_t> shares(workers, total / workers);
  for (uint32_t i = 0; i < total % workers; ++i) ++shares[order[i]];
  return shares;
}

// As BalancedShares, but no worker gives up a rank.
std::vector<uint32_t> GrownShares(std::vector<uint32_t> counts, uint32_t free) {
  for (; free > 0; --free) ++*std::min_element(counts.begin(), counts.end());
  return counts;
}

}  // namespace

std::vector<uint32_t> PlaceRanks(const RankPlacementInput& input) {
  std::vector<uint32_t> hosts = input.hosts;
  if (input.workers == 0) return hosts;
  std::vector<uint32_t> counts(input.workers);
  uint32_t free = 0;
  for (const uint32_t host : hosts) {
    if (host < input.workers) ++counts[host];
    free += host == kFree;
  }
  const std::vector<uint32_t> shares =
      input.rebalance ? BalancedShares(counts, free) : GrownShares(counts, free);

  // Workers with too many ranks give up their last ones.
  std::vector<uint32_t> first(input.workers, std::numeric_limits<uint32_t>::max());
  for (uint32_t rank = static_cast<uint32_t>(hosts.size()); rank-- > 0;) {
    const uint32_t host = hosts[rank];
    if (host >= input.workers) continue;
    if (counts[host] > shares[host]) {
      --counts[host];
      hosts[rank] = kFree;
    } else {
      first[host] = rank;
    }
  }

  std::vector<uint32_t> takers;
  for (uint32_t worker = 0; worker < input.workers; ++worker) {
    if (counts[worker] < shares[worker]) takers.push_back(worker);
  }
  std::stable_sort(takers.begin(), takers.end(),
                   [&](uint32_t a, uint32_t b) { return first[a] < first[b]; });
  size_t next = 0;
  for (uint32_t& host : hosts) {
    if (host != kFree) continue;
    host = takers[next];
    if (++counts[host] == shares[host]) ++next;
  }
  return hosts;
}

}  // namespace pawl
