#include "scheduler/placement/placement_draft.h"

#include <string>

namespace pawl {
namespace {

// A hot partition costs at least so many times what one costs on average, and such a share of what
// a server has on average. Others can be exchanged so that it does not matter.
constexpr double kHotTimes = 2;
constexpr double kHotShare = 0.25;

void Erase(std::vector<uint32_t>& all, uint32_t one) {
  all.erase(std::find(all.begin(), all.end(), one));
}

}  // namespace

void EvenOut(size_t servers, absl::FunctionRef<Share(uint32_t)> share,
             absl::FunctionRef<bool(uint32_t)> relieve, absl::FunctionRef<bool(uint32_t)> supply) {
  const auto surplus = [&](uint32_t server) { return share(server).has - share(server).quota; };
  std::vector<bool> stuck(servers);
  while (true) {
    uint32_t most = kNobody;
    uint32_t least = kNobody;
    for (uint32_t s = 0; s < servers; ++s) {
      if (stuck[s]) continue;
      if (most == kNobody || surplus(s) > surplus(most)) most = s;
      if (least == kNobody || surplus(s) < surplus(least)) least = s;
    }
    if (most == kNobody) return;
    const bool over = share(most).has > High(share(most).quota);
    const bool under = share(least).has < Low(share(least).quota);
    if (!over && !under) return;
    if (over ? !relieve(most) : !supply(least)) stuck[over ? most : least] = true;
  }
}

PlacementDraft::PlacementDraft(const std::vector<PlacementServer>& servers, uint32_t replicas,
                               const PartitionLoads& loads, const Placement& placement) {
  std::map<std::string, uint32_t> zones;
  std::vector<uint32_t> servers_in_zone;
  for (const PlacementServer& server : servers) {
    if (server.draining) continue;
    const uint32_t zone = zones.emplace(server.zone, zones.size()).first->second;
    index_[server.number] = static_cast<uint32_t>(servers_.size());
    servers_.emplace_back();
    servers_.back().number = server.number;
    servers_.back().zone = zone;
    servers_in_zone.resize(zones.size());
    ++servers_in_zone[zone];
  }
  replicas_ = std::min<uint32_t>(replicas, static_cast<uint32_t>(servers_.size()));
  zones_ = SpreadOverZones(servers_in_zone, replicas_);
  partitions_.resize(placement.partitions.size());
  if (servers_.empty()) return;
  for (size_t p = 0; p < partitions_.size(); ++p)
    AddPartition(static_cast<uint32_t>(p), placement.partitions[p]);
  Weigh(loads);
}

uint32_t PlacementDraft::IndexOf(ServerNumber server) const {
  const auto it = index_.find(server);
  return it == index_.end() ? kNobody : it->second;
}

void PlacementDraft::AddPartition(uint32_t p, const ReplicaSet& set) {
  DraftPartition& part = partitions_[p];
  if (set.primary == kNoServer && set.backups.empty()) return;
  part.placed = true;
  ++placed_;
  part.in_motion = !set.learners.empty() || set.leaving != kNoServer || set.yielding != kNoServer;
  // Whose place nobody takes stays.
  const auto there = [&](ServerNumber server) {
    return server != set.leaving && IndexOf(server) != kNobody;
  };
  size_t others = 0;
  others += set.primary != kNoServer && there(set.primary);
  for (const ServerNumber backup : set.backups) others += there(backup);
  for (const ReplicaSet::Learner& learner : set.learners) others += there(learner.server);
  const ServerNumber leaving = others >= replicas_ ? set.leaving : kNoServer;
  const auto add = [&](ServerNumber server, bool in_sync) {
    const uint32_t member = IndexOf(server);
    if (server == leaving || member == kNobody) return;
    part.members.push_back(member);
    if (in_sync) part.in_sync.push_back(member);
    part.former.push_back(member);
    servers_[member].partitions.push_back(p);
  };
  if (set.primary != kNoServer) add(set.primary, true);
  for (const ServerNumber backup : set.backups) add(backup, true);
  for (const ReplicaSet::Learner& learner : set.learners) add(learner.server, false);
  const ServerNumber primary = set.primary != kNoServer ? set.primary : set.backups.front();
  if (primary != leaving) part.primary = IndexOf(primary);
  if (part.primary != kNobody) ++servers_[part.primary].primaries;
}

void PlacementDraft::Weigh(const PartitionLoads& loads) {
  if (loads.size() != partitions_.size() || placed_ == 0) return;
  const double servers = static_cast<double>(servers_.size());
  std::array<double, kMeasures> total{};
  double primary_total = 0;
  const auto raw = [&](size_t p) {
    return std::array<double, kMeasures>{static_cast<double>(loads[p].parameter_bytes),
                                         static_cast<double>(loads[p].keys_pushed) +
                                             static_cast<double>(loads[p].keys_pulled) / replicas_};
  };
  const auto raw_primary = [&](size_t p) {
    return static_cast<double>(loads[p].keys_pushed) + static_cast<double>(loads[p].keys_pulled);
  };
  for (size_t p = 0; p < partitions_.size(); ++p) {
    if (!partitions_[p].placed) continue;
    for (int m = 0; m < kMeasures; ++m) total[m] += raw(p)[m];
    primary_total += raw_primary(p);
  }
  const std::array<double, kMeasures> least = {static_cast<double>(kLeastBytesToBalance),
                                               static_cast<double>(kLeastKeysToBalance)};
  for (int m = 0; m < kMeasures; ++m) weighed_[m] = total[m] >= least[m];
  const bool primaries_weighed = primary_total >= static_cast<double>(kLeastKeysToBalance);
  const double partitions = static_cast<double>(placed_);
  for (uint32_t p = 0; p < partitions_.size(); ++p) {
    DraftPartition& part = partitions_[p];
    if (!part.placed) continue;
    for (int m = 0; m < kMeasures; ++m) {
      if (!weighed_[m]) continue;
      part.weight[m] = raw(p)[m] * servers / (total[m] * replicas_);
      part.hot =
          part.hot || (part.weight[m] > kHotShare && raw(p)[m] > kHotTimes * total[m] / partitions);
      for (const uint32_t member : part.members) servers_[member].has[m] += part.weight[m];
    }
    if (!primaries_weighed) continue;
    part.primary_weight = raw_primary(p) * servers / primary_total;
    part.hot_primary =
        part.primary_weight > kHotShare && raw_primary(p) > kHotTimes * primary_total / partitions;
  }
  // If nearly all are, none is.
  const auto count = [&](bool DraftPartition::*hot) {
    return static_cast<size_t>(
        std::count_if(partitions_.begin(), partitions_.end(),
                      [&](const DraftPartition& part) { return part.*hot; }));
  };
  if (2 * count(&DraftPartition::hot) > placed_) {
    for (DraftPartition& part : partitions_) part.hot = false;
  }
  if (2 * count(&DraftPartition::hot_primary) > placed_) {
    for (DraftPartition& part : partitions_) part.hot_primary = false;
  }
}

void PlacementDraft::SetQuotas() {
  const double total = static_cast<double>(placed_) * replicas_;
  std::vector<QuotaServer> quota_servers;
  for (const DraftServer& server : servers_)
    quota_servers.push_back({server.zone, static_cast<double>(placed_)});
  const auto share_out = [&] {
    const std::vector<double> quotas =
        ShareOut(total, quota_servers, zones_, static_cast<double>(placed_));
    for (size_t s = 0; s < servers_.size(); ++s) servers_[s].quota = quotas[s];
  };
  share_out();
  bool limited = false;
  for (int m = 0; m < kMeasures; ++m) {
    if (!weighed_[m]) continue;
    double ordinary = 0;
    size_t ordinary_count = 0;
    for (const DraftPartition& part : partitions_) {
      if (!part.placed || part.hot) continue;
      ordinary += part.weight[m];
      ++ordinary_count;
    }
    if (ordinary_count == 0) continue;
    const double each = ordinary / static_cast<double>(ordinary_count);
    for (size_t s = 0; s < servers_.size(); ++s) {
      double heat = 0;
      double hot = 0;
      for (const uint32_t p : servers_[s].partitions) {
        if (!partitions_[p].hot) continue;
        heat += partitions_[p].weight[m];
        ++hot;
      }
      const double rest = (servers_[s].quota - hot) * each;
      if (hot == 0 || rest < kTolerance || heat + rest < 1 + kTolerance) continue;
      quota_servers[s].most =
          std::min(quota_servers[s].most, hot + std::floor(std::max(0.0, 1 - heat) / each));
      limited = true;
    }
  }
  if (limited) share_out();
}

void PlacementDraft::AddMember(uint32_t p, uint32_t server) {
  partitions_[p].members.push_back(server);
  servers_[server].partitions.push_back(p);
  for (int m = 0; m < kMeasures; ++m) servers_[server].has[m] += partitions_[p].weight[m];
}

void PlacementDraft::RemoveMember(uint32_t p, uint32_t server) {
  DraftPartition& part = partitions_[p];
  Erase(part.members, server);
  if (Contains(part.in_sync, server)) Erase(part.in_sync, server);
  Erase(servers_[server].partitions, p);
  for (int m = 0; m < kMeasures; ++m) servers_[server].has[m] -= part.weight[m];
  if (part.primary == server) SetPrimary(p, kNobody);
}

void PlacementDraft::Move(uint32_t p, uint32_t from, uint32_t to) {
  const bool was_primary = partitions_[p].primary == from;
  AddMember(p, to);
  RemoveMember(p, from);
  if (was_primary) SetPrimary(p, to);
}

void PlacementDraft::SetPrimary(uint32_t p, uint32_t server) {
  DraftPartition& part = partitions_[p];
  if (part.primary != kNobody) --servers_[part.primary].primaries;
  part.primary = server;
  if (server != kNobody) ++servers_[server].primaries;
}

uint32_t PlacementDraft::InZone(const DraftPartition& part, uint32_t zone) const {
  return static_cast<uint32_t>(
      std::count_if(part.members.begin(), part.members.end(),
                    [&](uint32_t member) { return servers_[member].zone == zone; }));
}

bool PlacementDraft::ZonesAllow(const DraftPartition& part, uint32_t from, uint32_t to) const {
  const uint32_t zone_from = servers_[from].zone;
  const uint32_t zone_to = servers_[to].zone;
  return zone_from == zone_to || (InZone(part, zone_from) > zones_[zone_from].least &&
                                  InZone(part, zone_to) < zones_[zone_to].most);
}

bool PlacementDraft::CanMove(uint32_t p, uint32_t from, uint32_t to) const {
  const DraftPartition& part = partitions_[p];
  return !part.in_motion && !Contains(part.members, to) && ZonesAllow(part, from, to);
}

double PlacementDraft::Gain(uint32_t p, uint32_t q, uint32_t from, uint32_t to) const {
  double gain = 0;
  for (int m = 0; m < kMeasures; ++m) {
    const double moved = partitions_[p].weight[m] - (q == kNobody ? 0 : partitions_[q].weight[m]);
    const double a = servers_[from].has[m];
    const double b = servers_[to].has[m];
    gain += a * a + b * b - (a - moved) * (a - moved) - (b + moved) * (b + moved);
  }
  return gain;
}

std::vector<Hop> ShortestWay(
    const PlacementDraft& draft, const std::vector<uint32_t>& from, const std::vector<uint32_t>& to,
    absl::FunctionRef<absl::Span<const uint32_t>(uint32_t, uint32_t)> takers,
    absl::FunctionRef<bool(uint32_t, uint32_t, uint32_t)> may_go) {
  // By which each server was reached first.
  std::vector<Hop> hops(draft.servers().size());
  std::vector<bool> reached(draft.servers().size());
  std::vector<uint32_t> queue = from;
  for (const uint32_t s : from) reached[s] = true;
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t here = queue[i];
    for (const uint32_t p : draft.servers()[here].partitions) {
      for (const uint32_t next : takers(p, here)) {
        if (reached[next] || !may_go(p, here, next)) continue;
        reached[next] = true;
        hops[next] = {here, next, p};
        queue.push_back(next);
        if (!Contains(to, next)) continue;
        std::vector<Hop> way;
        for (uint32_t s = next; hops[s].from != kNobody; s = hops[s].from) way.push_back(hops[s]);
        return way;
      }
    }
  }
  return {};
}

}  // namespace pawl
