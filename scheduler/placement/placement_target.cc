#include "scheduler/placement/placement_target.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

#include "scheduler/placement/placement_draft.h"
#include "scheduler/placement/placement_measures.h"
#include "scheduler/placement/placement_numbers.h"
#include "scheduler/placement/placement_primaries.h"
#include "scheduler/placement/placement_spread.h"

namespace pawl {
namespace {

PlacementTarget TargetOf(const PlacementDraft& draft) {
  PlacementTarget target;
  for (const DraftPartition& part : draft.partitions()) {
    std::vector<ServerNumber>& members = target.partitions.emplace_back();
    if (!part.placed) continue;
    members.push_back(draft.servers()[part.primary].number);
    std::vector<uint32_t> zones;
    for (const uint32_t member : part.members) {
      zones.push_back(draft.servers()[member].zone);
      if (member != part.primary) members.push_back(draft.servers()[member].number);
    }
    std::sort(zones.begin(), zones.end());
    target.sharing_a_zone +=
        draft.zones().size() > 1 && std::adjacent_find(zones.begin(), zones.end()) != zones.end();
  }
  return target;
}

}  // namespace

PlacementTarget ComputeTarget(const std::vector<PlacementServer>& servers, uint32_t replicas,
                              const PartitionLoads& loads, const Placement& placement) {
  PlacementDraft draft(servers, replicas, loads, placement);
  if (draft.servers().empty()) {
    PlacementTarget nobody;
    nobody.partitions.resize(placement.partitions.size());
    return nobody;
  }
  draft.SetQuotas();
  SpreadReplicas(draft);
  BalanceNumbers(draft);
  BalanceMeasures(draft);
  ChoosePrimaries(draft);
  return TargetOf(draft);
}

void PlaceFirstInZones(const std::vector<PlacementServer>& servers, uint32_t partitions,
                       uint32_t replicas, Placement& placement) {
  std::vector<ServerNumber> numbers;
  for (const PlacementServer& server : servers) numbers.push_back(server.number);
  PlaceFirst(numbers, partitions, replicas, placement);
  const bool one_zone =
      std::all_of(servers.begin(), servers.end(),
                  [&](const PlacementServer& server) { return server.zone == servers[0].zone; });
  if (one_zone) return;
  const PlacementTarget target = ComputeTarget(servers, replicas, {}, placement);
  for (uint32_t p = 0; p < partitions; ++p) {
    placement.partitions[p].primary = target.partitions[p].front();
    placement.partitions[p].backups.assign(target.partitions[p].begin() + 1,
                                           target.partitions[p].end());
  }
}

double Imbalance(const std::vector<PlacementServer>& servers, const PartitionLoads& loads,
                 const PlacementTarget& target) {
  std::map<ServerNumber, std::array<double, kMeasures>> has;
  std::array<double, kMeasures> total{};
  for (const PlacementServer& server : servers) {
    if (!server.draining) has[server.number] = {};
  }
  for (size_t p = 0; p < std::min(loads.size(), target.partitions.size()); ++p) {
    for (size_t i = 0; i < target.partitions[p].size(); ++i) {
      const auto it = has.find(target.partitions[p][i]);
      if (it == has.end()) continue;
      const double pulled = i == 0 ? static_cast<double>(loads[p].keys_pulled) : 0;
      const std::array<double, kMeasures> weight = {
          static_cast<double>(loads[p].parameter_bytes),
          static_cast<double>(loads[p].keys_pushed) + pulled};
      for (int m = 0; m < kMeasures; ++m) {
        it->second[m] += weight[m];
        total[m] += weight[m];
      }
    }
  }
  const std::array<double, kMeasures> least = {static_cast<double>(kLeastBytesToBalance),
                                               static_cast<double>(kLeastKeysToBalance)};
  double worst = 1;
  for (const auto& [server, weights] : has) {
    for (int m = 0; m < kMeasures; ++m) {
      if (total[m] >= least[m])
        worst = std::max(worst, weights[m] * static_cast<double>(has.size()) / total[m]);
    }
  }
  return worst;
}

}  // namespace pawl
