#include "scheduler/placement_target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "scheduler/replica_quotas.h"

namespace pawl {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
// A hot partition costs at least so many times what one costs on average, and such a share of what a server has on average.
// Others can be exchanged so that it does not matter.
constexpr double kHotTimes = 2;
constexpr double kHotShare = 0.25;
// Exchanges of partitions between two servers in one target: more would not be few moves.
constexpr int kMaxExchanges = 256;
// Partitions of each of the two that are looked at for an exchange.
constexpr size_t kMaxCandidates = 64;
// An exchange that makes the servers equal by less is not worth it, in squares of shares of the mean.
constexpr double kLeastGain = 1e-3;
constexpr double kRounding = 1e-6;

// What is to be equal besides the number of replicas.
enum Measure { kBytes, kKeys, kMeasures };

struct Server {
  ServerNumber number = 0;
  uint32_t zone = 0;
  // Partitions that it has a replica of.
  std::vector<uint32_t> partitions;
  uint32_t primaries = 0;
  // Sums over its partitions, in shares of what a server has on average.
  std::array<double, kMeasures> has{};
  double quota = 0;
  double primary_quota = 0;

  double replicas() const { return static_cast<double>(partitions.size()); }
  double surplus() const { return replicas() - quota; }
  double primary_surplus() const { return primaries - primary_quota; }
};

struct Part {
  // Somebody who has its data is there.
  bool placed = false;
  // Indices in servers_.
  std::vector<uint32_t> members;
  // Those of them that have its data.
  std::vector<uint32_t> in_sync;
  // The members at first.
  std::vector<uint32_t> former;
  uint32_t primary = kNobody;
  // Something is being copied or handed over.
  bool in_motion = false;
  bool hot = false;
  bool hot_primary = false;
  // In shares of what a server has on average.
  std::array<double, kMeasures> weight{};
  double primary_weight = 0;
};

bool Contains(const std::vector<uint32_t>& all, uint32_t one) { return std::find(all.begin(), all.end(), one) != all.end(); }

void Erase(std::vector<uint32_t>& all, uint32_t one) { all.erase(std::find(all.begin(), all.end(), one)); }

double Low(double quota) { return std::floor(quota + kRounding); }
double High(double quota) { return std::ceil(quota - kRounding); }

class TargetBuilder {
 public:
  TargetBuilder(const std::vector<PlacementServer>& servers, uint32_t replicas, const PartitionLoads& loads,
                const Placement& placement) {
    std::map<std::string, uint32_t> zones;
    for (const PlacementServer& server : servers) {
      if (server.draining) continue;
      const uint32_t zone = zones.emplace(server.zone, zones.size()).first->second;
      index_[server.number] = static_cast<uint32_t>(servers_.size());
      servers_.emplace_back();
      servers_.back().number = server.number;
      servers_.back().zone = zone;
      servers_in_zone_.resize(zones.size());
      ++servers_in_zone_[zone];
    }
    wanted_ = std::min<uint32_t>(replicas, static_cast<uint32_t>(servers_.size()));
    bounds_ = SpreadOverZones(servers_in_zone_, wanted_);
    parts_.resize(placement.partitions.size());
    if (servers_.empty()) return;
    for (size_t p = 0; p < parts_.size(); ++p) AddPart(static_cast<uint32_t>(p), placement.partitions[p]);
    Weigh(loads);
  }

  PlacementTarget Build() {
    PlacementTarget target;
    target.partitions.resize(parts_.size());
    if (servers_.empty()) return target;
    SetQuotas();
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      if (!parts_[p].placed) continue;
      Trim(p);
      Fill(p);
      Spread(p);
    }
    SpreadHot();
    SetQuotas();
    BalanceNumbers();
    TakeBackMoves();
    BalanceMeasures();
    ChoosePrimaries();
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p];
      if (!part.placed) continue;
      target.partitions[p].push_back(servers_[part.primary].number);
      std::vector<uint32_t> zones;
      for (const uint32_t member : part.members) {
        zones.push_back(servers_[member].zone);
        if (member != part.primary) target.partitions[p].push_back(servers_[member].number);
      }
      std::sort(zones.begin(), zones.end());
      target.sharing_a_zone += servers_in_zone_.size() > 1 && std::adjacent_find(zones.begin(), zones.end()) != zones.end();
    }
    return target;
  }

 private:
  uint32_t IndexOf(ServerNumber server) const {
    const auto it = index_.find(server);
    return it == index_.end() ? kNobody : it->second;
  }

  void AddPart(uint32_t p, const ReplicaSet& set) {
    Part& part = parts_[p];
    if (set.primary == kNoServer && set.backups.empty()) return;
    part.placed = true;
    ++placed_;
    part.in_motion = !set.learners.empty() || set.leaving != kNoServer || set.yielding != kNoServer;
    // Whose place nobody takes stays.
    const auto there = [&](ServerNumber server) { return server != set.leaving && IndexOf(server) != kNobody; };
    size_t others = 0;
    others += set.primary != kNoServer && there(set.primary);
    for (const ServerNumber backup : set.backups) others += there(backup);
    for (const ReplicaSet::Learner& learner : set.learners) others += there(learner.server);
    const ServerNumber leaving = others >= wanted_ ? set.leaving : kNoServer;
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

  // Shares of what a server has on average, and which are hot.
  void Weigh(const PartitionLoads& loads) {
    if (loads.size() != parts_.size() || placed_ == 0) return;
    const double servers = static_cast<double>(servers_.size());
    std::array<double, kMeasures> total{};
    double primary_total = 0;
    const auto raw = [&](size_t p) {
      return std::array<double, kMeasures>{
          static_cast<double>(loads[p].parameter_bytes),
          static_cast<double>(loads[p].keys_pushed) + static_cast<double>(loads[p].keys_pulled) / wanted_};
    };
    const auto raw_primary = [&](size_t p) {
      return static_cast<double>(loads[p].keys_pushed) + static_cast<double>(loads[p].keys_pulled);
    };
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!parts_[p].placed) continue;
      for (int m = 0; m < kMeasures; ++m) total[m] += raw(p)[m];
      primary_total += raw_primary(p);
    }
    const std::array<double, kMeasures> least = {static_cast<double>(kLeastBytesToBalance),
                                                 static_cast<double>(kLeastKeysToBalance)};
    for (int m = 0; m < kMeasures; ++m) weighed_[m] = total[m] >= least[m];
    const bool primaries_weighed = primary_total >= static_cast<double>(kLeastKeysToBalance);
    const double partitions = static_cast<double>(placed_);
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      if (!part.placed) continue;
      for (int m = 0; m < kMeasures; ++m) {
        if (!weighed_[m]) continue;
        part.weight[m] = raw(p)[m] * servers / (total[m] * wanted_);
        part.hot = part.hot || (part.weight[m] > kHotShare && raw(p)[m] > kHotTimes * total[m] / partitions);
        for (const uint32_t member : part.members) servers_[member].has[m] += part.weight[m];
      }
      if (!primaries_weighed) continue;
      part.primary_weight = raw_primary(p) * servers / primary_total;
      part.hot_primary = part.primary_weight > kHotShare && raw_primary(p) > kHotTimes * primary_total / partitions;
    }
    // If nearly all are, none is.
    const auto count = [&](bool Part::*hot) {
      return static_cast<size_t>(std::count_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.*hot; }));
    };
    if (2 * count(&Part::hot) > placed_) {
      for (Part& part : parts_) part.hot = false;
    }
    if (2 * count(&Part::hot_primary) > placed_) {
      for (Part& part : parts_) part.hot_primary = false;
    }
  }

  // The number of replicas that each server is to have. What hot partitions take is taken off.
  void SetQuotas() {
    const double total = static_cast<double>(placed_) * wanted_;
    std::vector<QuotaServer> quota_servers;
    for (const Server& server : servers_) quota_servers.push_back({server.zone, static_cast<double>(placed_)});
    const auto share_out = [&] {
      const std::vector<double> quotas = ShareOut(total, quota_servers, bounds_, static_cast<double>(placed_));
      for (size_t s = 0; s < servers_.size(); ++s) servers_[s].quota = quotas[s];
    };
    share_out();
    bool limited = false;
    for (int m = 0; m < kMeasures; ++m) {
      if (!weighed_[m]) continue;
      double ordinary = 0;
      size_t ordinary_count = 0;
      for (const Part& part : parts_) {
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
          if (!parts_[p].hot) continue;
          heat += parts_[p].weight[m];
          ++hot;
        }
        const double rest = (servers_[s].quota - hot) * each;
        if (hot == 0 || rest < kTolerance || heat + rest < 1 + kTolerance) continue;
        quota_servers[s].most = std::min(quota_servers[s].most, hot + std::floor(std::max(0.0, 1 - heat) / each));
        limited = true;
      }
    }
    if (limited) share_out();
  }

  // Members ---------------------------------------------------------------------

  void AddMember(uint32_t p, uint32_t server) {
    parts_[p].members.push_back(server);
    servers_[server].partitions.push_back(p);
    for (int m = 0; m < kMeasures; ++m) servers_[server].has[m] += parts_[p].weight[m];
  }

  void RemoveMember(uint32_t p, uint32_t server) {
    Part& part = parts_[p];
    Erase(part.members, server);
    if (Contains(part.in_sync, server)) Erase(part.in_sync, server);
    Erase(servers_[server].partitions, p);
    for (int m = 0; m < kMeasures; ++m) servers_[server].has[m] -= part.weight[m];
    if (part.primary == server) SetPrimary(p, kNobody);
  }

  // Whoever has the place has the role.
  void Move(uint32_t p, uint32_t from, uint32_t to) {
    const bool was_primary = parts_[p].primary == from;
    AddMember(p, to);
    RemoveMember(p, from);
    if (was_primary) SetPrimary(p, to);
  }

  void SetPrimary(uint32_t p, uint32_t server) {
    Part& part = parts_[p];
    if (part.primary != kNobody) --servers_[part.primary].primaries;
    part.primary = server;
    if (server != kNobody) ++servers_[server].primaries;
  }

  uint32_t InZone(const Part& part, uint32_t zone) const {
    return static_cast<uint32_t>(std::count_if(part.members.begin(), part.members.end(),
                                               [&](uint32_t member) { return servers_[member].zone == zone; }));
  }

  // The one with the least to do among those that are not members and that `fits` lets pass; of equals another one for
  // each partition, so that the backups of one server are spread over all others.
  template <typename Fits>
  uint32_t LeastLoaded(const Part& part, const Fits& fits) const {
    uint32_t best = kNobody;
    const size_t count = servers_.size();
    const size_t p = static_cast<size_t>(&part - parts_.data());
    for (size_t i = 0; i < count; ++i) {
      const auto server = static_cast<uint32_t>((p + p / count + i) % count);
      if (Contains(part.members, server) || !fits(server)) continue;
      if (best == kNobody || servers_[server].surplus() < servers_[best].surplus() - kRounding) best = server;
    }
    return best;
  }

  void Trim(uint32_t p) {
    Part& part = parts_[p];
    while (part.members.size() > wanted_) {
      const auto key = [&](uint32_t member) {
        const Server& server = servers_[member];
        const uint32_t here = InZone(part, server.zone);
        const uint32_t crowd = here > bounds_[server.zone].most ? here : 0;
        return std::tuple(crowd, !Contains(part.in_sync, member), server.surplus(), part.primary != member, member);
      };
      RemoveMember(p, *std::max_element(part.members.begin(), part.members.end(),
                                        [&](uint32_t a, uint32_t b) { return key(a) < key(b); }));
    }
  }

  void Fill(uint32_t p) {
    Part& part = parts_[p];
    while (part.members.size() < wanted_) {
      uint32_t fewest = UINT32_MAX;
      for (uint32_t zone = 0; zone < bounds_.size(); ++zone) {
        const uint32_t here = InZone(part, zone);
        if (here < bounds_[zone].most) fewest = std::min(fewest, here >= bounds_[zone].least ? here + 1 : here);
      }
      AddMember(p, LeastLoaded(part, [&](uint32_t server) {
                  const ZoneBounds& bounds = bounds_[servers_[server].zone];
                  const uint32_t here = InZone(part, servers_[server].zone);
                  return here < bounds.most && (here >= bounds.least ? here + 1 : here) <= fewest;
                }));
    }
  }

  // Moves replicas from crowded zones to others.
  void Spread(uint32_t p) {
    Part& part = parts_[p];
    while (true) {
      bool crowded = false;
      bool lonely = false;
      for (uint32_t zone = 0; zone < bounds_.size(); ++zone) {
        const uint32_t here = InZone(part, zone);
        crowded = crowded || here > bounds_[zone].most;
        lonely = lonely || here < bounds_[zone].least;
      }
      if (!crowded && !lonely) return;
      uint32_t from = kNobody;
      for (const uint32_t member : part.members) {
        const ZoneBounds& bounds = bounds_[servers_[member].zone];
        const uint32_t here = InZone(part, servers_[member].zone);
        if (here <= (crowded ? bounds.most : bounds.least)) continue;
        if (from == kNobody || servers_[member].surplus() > servers_[from].surplus()) from = member;
      }
      const uint32_t to = LeastLoaded(part, [&](uint32_t server) {
        const ZoneBounds& bounds = bounds_[servers_[server].zone];
        return InZone(part, servers_[server].zone) < (lonely ? bounds.least : bounds.most);
      });
      if (from == kNobody || to == kNobody) return;
      Move(p, from, to);
    }
  }

  bool ZonesAllow(const Part& part, uint32_t from, uint32_t to) const {
    const uint32_t zone_from = servers_[from].zone;
    const uint32_t zone_to = servers_[to].zone;
    return zone_from == zone_to ||
           (InZone(part, zone_from) > bounds_[zone_from].least && InZone(part, zone_to) < bounds_[zone_to].most);
  }

  bool CanMove(uint32_t p, uint32_t from, uint32_t to) const {
    const Part& part = parts_[p];
    return !part.in_motion && !Contains(part.members, to) && ZonesAllow(part, from, to);
  }

  // Numbers ---------------------------------------------------------------------

  // No server has hot partitions that another one could have with less.
  void SpreadHot() {
    std::vector<uint32_t> hot;
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].hot && !parts_[p].in_motion) hot.push_back(p);
    }
    const auto weight = [&](uint32_t p) { return *std::max_element(parts_[p].weight.begin(), parts_[p].weight.end()); };
    std::stable_sort(hot.begin(), hot.end(), [&](uint32_t a, uint32_t b) { return weight(a) > weight(b); });
    std::vector<double> heat(servers_.size());
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!parts_[p].hot) continue;
      for (const uint32_t member : parts_[p].members) heat[member] += weight(static_cast<uint32_t>(p));
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const uint32_t p : hot) {
        const std::vector<uint32_t> members = parts_[p].members;
        for (const uint32_t from : members) {
          uint32_t coolest = kNobody;
          for (uint32_t to = 0; to < servers_.size(); ++to) {
            if (!CanMove(p, from, to)) continue;
            if (coolest == kNobody || heat[to] < heat[coolest]) coolest = to;
          }
          if (coolest == kNobody || heat[coolest] + weight(p) > heat[from] - kTolerance) continue;
          heat[coolest] += weight(p);
          heat[from] -= weight(p);
          Move(p, from, coolest);
          changed = true;
        }
      }
    }
  }

  // From those with too many to those with too few, until all have their quotas, rounded up or down.
  void BalanceNumbers() {
    std::vector<bool> stuck(servers_.size());
    while (true) {
      uint32_t most = kNobody;
      uint32_t least = kNobody;
      for (uint32_t s = 0; s < servers_.size(); ++s) {
        if (stuck[s]) continue;
        if (most == kNobody || servers_[s].surplus() > servers_[most].surplus()) most = s;
        if (least == kNobody || servers_[s].surplus() < servers_[least].surplus()) least = s;
      }
      if (most == kNobody) return;
      const bool over = servers_[most].replicas() > High(servers_[most].quota);
      const bool under = servers_[least].replicas() < Low(servers_[least].quota);
      if (!over && !under) return;
      if (over ? !Relieve(most) : !Supply(least)) stuck[over ? most : least] = true;
    }
  }

  // Where a partition has gone from a server to which another one has come, both may as well stay, with the numbers as they
  // are.
  void TakeBackMoves() {
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      const std::vector<uint32_t> members = parts_[p].members;
      for (const uint32_t to : members) {
        if (Contains(parts_[p].former, to)) continue;
        for (const uint32_t from : parts_[p].former) {
          if (TakeBackMove(p, from, to)) break;
        }
      }
    }
  }

  bool TakeBackMove(uint32_t p, uint32_t from, uint32_t to) {
    if (parts_[p].hot || !CanMove(p, to, from)) return false;
    for (const uint32_t other : servers_[from].partitions) {
      if (parts_[other].hot || Contains(parts_[other].former, from) || !CanMove(other, from, to)) continue;
      Move(p, to, from);
      Move(other, from, to);
      return true;
    }
    return false;
  }

  // Those that can take one more, the neediest first; and that can give one, the fullest first.
  std::vector<uint32_t> Takers() const {
    std::vector<uint32_t> all;
    for (uint32_t s = 0; s < servers_.size(); ++s) {
      if (servers_[s].replicas() + 1 <= High(servers_[s].quota)) all.push_back(s);
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](uint32_t a, uint32_t b) { return servers_[a].surplus() < servers_[b].surplus(); });
    return all;
  }
  std::vector<uint32_t> Givers() const {
    std::vector<uint32_t> all;
    for (uint32_t s = 0; s < servers_.size(); ++s) {
      if (servers_[s].replicas() - 1 >= Low(servers_[s].quota)) all.push_back(s);
    }
    std::stable_sort(all.begin(), all.end(),
                     [&](uint32_t a, uint32_t b) { return servers_[a].surplus() > servers_[b].surplus(); });
    return all;
  }

  bool Relieve(uint32_t from) {
    const std::vector<uint32_t> takers = Takers();
    for (const uint32_t to : takers) {
      if (MoveOne(from, to)) return true;
    }
    return MoveAlongAPath({from}, takers);
  }

  bool Supply(uint32_t to) {
    const std::vector<uint32_t> givers = Givers();
    for (const uint32_t from : givers) {
      if (from != to && MoveOne(from, to)) return true;
    }
    return MoveAlongAPath(givers, {to});
  }

  // The partition that leaves primaries, bytes and keys the most equal.
  bool MoveOne(uint32_t from, uint32_t to) {
    const bool wants_primary = servers_[from].primary_surplus() - servers_[to].primary_surplus() > 1;
    std::pair<bool, double> best_key;
    uint32_t best = kNobody;
    for (const uint32_t p : servers_[from].partitions) {
      if (parts_[p].hot || !CanMove(p, from, to)) continue;
      const std::pair<bool, double> key((parts_[p].primary == from) != wants_primary, Gain(p, kNobody, from, to) * -1);
      if (best != kNobody && key >= best_key) continue;
      best = p;
      best_key = key;
    }
    if (best == kNobody) return false;
    Move(best, from, to);
    return true;
  }

  // Where no single move will do: a replica of one partition from the first to the second, of another from the second
  // to the third, and so on; the shortest way.
  bool MoveAlongAPath(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    struct Hop {
      uint32_t before = kNobody;
      uint32_t partition = kNobody;
    };
    std::vector<Hop> hops(servers_.size());
    std::vector<bool> reached(servers_.size());
    std::vector<uint32_t> queue = from;
    for (const uint32_t s : from) reached[s] = true;
    for (size_t i = 0; i < queue.size(); ++i) {
      const uint32_t here = queue[i];
      for (const uint32_t p : servers_[here].partitions) {
        if (parts_[p].hot || parts_[p].in_motion) continue;
        for (uint32_t next = 0; next < servers_.size(); ++next) {
          if (reached[next] || !CanMove(p, here, next)) continue;
          reached[next] = true;
          hops[next] = {here, p};
          queue.push_back(next);
          if (!Contains(to, next)) continue;
          std::vector<uint32_t> moved;
          for (uint32_t s = next; hops[s].before != kNobody; s = hops[s].before) {
            if (Contains(moved, hops[s].partition)) return false;
            moved.push_back(hops[s].partition);
          }
          for (uint32_t s = next; hops[s].before != kNobody; s = hops[s].before) Move(hops[s].partition, hops[s].before, s);
          return true;
        }
      }
    }
    return false;
  }

  // Bytes and keys --------------------------------------------------------------

  // By how much the sum of squares falls if p goes from `from` to `to`, and q (if it is one) the other way.
  double Gain(uint32_t p, uint32_t q, uint32_t from, uint32_t to) const {
    double gain = 0;
    for (int m = 0; m < kMeasures; ++m) {
      const double moved = parts_[p].weight[m] - (q == kNobody ? 0 : parts_[q].weight[m]);
      const double a = servers_[from].has[m];
      const double b = servers_[to].has[m];
      gain += a * a + b * b - (a - moved) * (a - moved) - (b + moved) * (b + moved);
    }
    return gain;
  }

  // Exchanges partitions between the servers that differ the most: as long as that helps, by copying others instead of what
  // is to be copied anyway, then by copying one more, then two.
  void BalanceMeasures() {
    for (int copies = 0; copies <= 2; ++copies) BalanceMeasures(copies);
  }
  void BalanceMeasures(int copies) {
    for (int exchange = 0; exchange < kMaxExchanges; ++exchange) {
      bool exchanged = false;
      for (int m = 0; m < kMeasures && !exchanged; ++m) {
        if (!weighed_[m]) continue;
        std::vector<uint32_t> order(servers_.size());
        std::iota(order.begin(), order.end(), 0u);
        // Servers with fewer replicas because of their zone have less, and are to.
        const auto excess = [&](uint32_t s) { return servers_[s].has[m] - servers_[s].quota * average_quota_inverse(); };
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return excess(a) > excess(b); });
        if (excess(order.front()) > kTolerance) {
          for (size_t i = order.size(); i-- > 1 && !exchanged;) exchanged = Exchange(order.front(), order[i], copies);
        }
        if (!exchanged && excess(order.back()) < -kTolerance) {
          for (size_t i = 0; i + 1 < order.size() && !exchanged; ++i) exchanged = Exchange(order[i], order.back(), copies);
        }
      }
      if (!exchanged) return;
    }
  }
  double average_quota_inverse() const {
    return static_cast<double>(servers_.size()) / (static_cast<double>(placed_) * wanted_);
  }

  // How many replicas more are copied for it.
  int Copies(uint32_t p, uint32_t from, uint32_t to) const {
    return static_cast<int>(Contains(parts_[p].former, from)) - static_cast<int>(Contains(parts_[p].former, to));
  }

  bool Exchange(uint32_t a, uint32_t b, int copies) {
    const auto candidates = [&](uint32_t from, uint32_t to) {
      std::vector<uint32_t> all;
      for (const uint32_t p : servers_[from].partitions) {
        if (!parts_[p].hot && CanMove(p, from, to)) all.push_back(p);
      }
      // The heaviest and the lightest ones.
      const auto weight = [&](uint32_t p) { return parts_[p].weight[kBytes] + parts_[p].weight[kKeys]; };
      std::stable_sort(all.begin(), all.end(), [&](uint32_t p, uint32_t q) { return weight(p) > weight(q); });
      if (all.size() > kMaxCandidates) {
        all.erase(all.begin() + kMaxCandidates / 2, all.end() - static_cast<std::ptrdiff_t>(kMaxCandidates / 2));
      }
      return all;
    };
    double best_gain = kLeastGain;
    uint32_t best_p = kNobody;
    uint32_t best_q = kNobody;
    const std::vector<uint32_t> others = candidates(b, a);
    for (const uint32_t p : candidates(a, b)) {
      for (const uint32_t q : others) {
        const double gain = Gain(p, q, a, b);
        if (gain <= best_gain || Copies(p, a, b) + Copies(q, b, a) > copies) continue;
        best_gain = gain;
        best_p = p;
        best_q = q;
      }
    }
    if (best_p == kNobody) return false;
    Move(best_p, a, b);
    Move(best_q, b, a);
    return true;
  }

  // Primaries -------------------------------------------------------------------

  void ChoosePrimaries() {
    SetPrimaryQuotas();
    for (uint32_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      if (!part.placed || part.primary != kNobody) continue;
      const auto key = [&](uint32_t member) {
        return std::tuple(servers_[member].primary_surplus(), !Contains(part.in_sync, member), member);
      };
      SetPrimary(p, *std::min_element(part.members.begin(), part.members.end(),
                                      [&](uint32_t a, uint32_t b) { return key(a) < key(b); }));
    }
    SpreadHotPrimaries();
    SetPrimaryQuotas();
    const bool balanced = std::all_of(servers_.begin(), servers_.end(), [&](const Server& server) {
      const double slack = std::floor(kTolerance * server.primary_quota);
      return server.primaries >= Low(server.primary_quota) - slack && server.primaries <= High(server.primary_quota) + slack;
    });
    if (balanced) return;
    std::vector<bool> stuck(servers_.size());
    while (true) {
      uint32_t most = kNobody;
      uint32_t least = kNobody;
      for (uint32_t s = 0; s < servers_.size(); ++s) {
        if (stuck[s]) continue;
        if (most == kNobody || servers_[s].primary_surplus() > servers_[most].primary_surplus()) most = s;
        if (least == kNobody || servers_[s].primary_surplus() < servers_[least].primary_surplus()) least = s;
      }
      if (most == kNobody) return;
      const bool over = servers_[most].primaries > High(servers_[most].primary_quota);
      const bool under = servers_[least].primaries < Low(servers_[least].primary_quota);
      if (!over && !under) return;
      std::vector<uint32_t> givers;
      std::vector<uint32_t> takers;
      for (uint32_t s = 0; s < servers_.size(); ++s) {
        if (servers_[s].primaries + 1 <= High(servers_[s].primary_quota)) takers.push_back(s);
        if (servers_[s].primaries - 1.0 >= Low(servers_[s].primary_quota)) givers.push_back(s);
      }
      const bool passed = over ? PassPrimaries({most}, takers) : PassPrimaries(givers, {least});
      if (!passed) stuck[over ? most : least] = true;
    }
  }

  void SetPrimaryQuotas() {
    double ordinary = 0;
    size_t ordinary_count = 0;
    for (const Part& part : parts_) {
      if (!part.placed || part.hot_primary) continue;
      ordinary += part.primary_weight;
      ++ordinary_count;
    }
    const double each = ordinary_count == 0 ? 0 : ordinary / static_cast<double>(ordinary_count);
    std::vector<double> heat(servers_.size());
    std::vector<double> hot(servers_.size());
    for (const Part& part : parts_) {
      if (!part.hot_primary || part.primary == kNobody) continue;
      heat[part.primary] += part.primary_weight;
      ++hot[part.primary];
    }
    std::vector<QuotaServer> quota_servers;
    const double even = static_cast<double>(placed_) / static_cast<double>(servers_.size());
    for (size_t s = 0; s < servers_.size(); ++s) {
      double most = std::max(servers_[s].replicas(), 1.0);
      const double rest = (even - hot[s]) * each;
      if (hot[s] > 0 && rest >= kTolerance && heat[s] + rest >= 1 + kTolerance) {
        most = std::min(most, hot[s] + std::floor(std::max(0.0, 1 - heat[s]) / each));
      }
      quota_servers.push_back({0, most});
    }
    const std::vector<double> quotas = ShareOut(static_cast<double>(placed_), quota_servers,
                                                {{0, static_cast<uint32_t>(servers_.size())}}, static_cast<double>(placed_));
    for (size_t s = 0; s < servers_.size(); ++s) servers_[s].primary_quota = quotas[s];
  }

  void SpreadHotPrimaries() {
    std::vector<double> heat(servers_.size());
    for (const Part& part : parts_) {
      if (part.hot_primary && part.primary != kNobody) heat[part.primary] += part.primary_weight;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t p = 0; p < parts_.size(); ++p) {
        const Part& part = parts_[p];
        if (!part.hot_primary || part.in_motion) continue;
        for (const uint32_t member : part.members) {
          if (heat[member] + part.primary_weight > heat[part.primary] - kTolerance) continue;
          heat[part.primary] -= part.primary_weight;
          heat[member] += part.primary_weight;
          SetPrimary(p, member);
          changed = true;
        }
      }
    }
  }

  // The role of primary goes from one to the next along the shortest way.
  bool PassPrimaries(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    struct Hop {
      uint32_t before = kNobody;
      uint32_t partition = kNobody;
    };
    std::vector<Hop> hops(servers_.size());
    std::vector<bool> reached(servers_.size());
    std::vector<uint32_t> queue = from;
    for (const uint32_t s : from) reached[s] = true;
    for (size_t i = 0; i < queue.size(); ++i) {
      for (const uint32_t p : servers_[queue[i]].partitions) {
        const Part& part = parts_[p];
        if (part.primary != queue[i] || part.in_motion || part.hot_primary) continue;
        for (const uint32_t next : part.members) {
          if (reached[next]) continue;
          reached[next] = true;
          hops[next] = {queue[i], p};
          queue.push_back(next);
          if (!Contains(to, next)) continue;
          for (uint32_t s = next; hops[s].before != kNobody; s = hops[s].before) SetPrimary(hops[s].partition, s);
          return true;
        }
      }
    }
    return false;
  }

  std::vector<Server> servers_;
  std::map<ServerNumber, uint32_t> index_;
  std::vector<uint32_t> servers_in_zone_;
  uint32_t wanted_ = 0;
  std::vector<ZoneBounds> bounds_;
  std::vector<Part> parts_;
  // Partitions that are.
  size_t placed_ = 0;
  std::array<bool, kMeasures> weighed_{};
};

}  // namespace

PlacementTarget ComputeTarget(const std::vector<PlacementServer>& servers, uint32_t replicas, const PartitionLoads& loads,
                              const Placement& placement) {
  return TargetBuilder(servers, replicas, loads, placement).Build();
}

void PlaceFirstInZones(const std::vector<PlacementServer>& servers, uint32_t partitions, uint32_t replicas,
                       Placement& placement) {
  std::vector<ServerNumber> numbers;
  for (const PlacementServer& server : servers) numbers.push_back(server.number);
  PlaceFirst(numbers, partitions, replicas, placement);
  const bool one_zone = std::all_of(servers.begin(), servers.end(),
                                    [&](const PlacementServer& server) { return server.zone == servers[0].zone; });
  if (one_zone) return;
  const PlacementTarget target = ComputeTarget(servers, replicas, {}, placement);
  for (uint32_t p = 0; p < partitions; ++p) {
    placement.partitions[p].primary = target.partitions[p].front();
    placement.partitions[p].backups.assign(target.partitions[p].begin() + 1, target.partitions[p].end());
  }
}

double Imbalance(const std::vector<PlacementServer>& servers, const PartitionLoads& loads, const PlacementTarget& target) {
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
      const std::array<double, kMeasures> weight = {static_cast<double>(loads[p].parameter_bytes),
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
      if (total[m] >= least[m]) worst = std::max(worst, weights[m] * static_cast<double>(has.size()) / total[m]);
    }
  }
  return worst;
}

}  // namespace pawl
