#include "scheduler/placement/placement_target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace pawl {
namespace {

// Servers are indices into the planner's list.
using Index = uint32_t;
constexpr Index kNone = UINT32_MAX;

// A hot partition costs at least this many times the median one, and at least this share of what a
// server holds on average. Exchanges of pairs even out smaller differences.
constexpr double kHotTimes = 4;
constexpr double kHotShare = 0.25;
// Exchanges in one target. Each copies up to two replicas.
constexpr int kMaxExchanges = 512;
// Partitions of each of two servers that are considered for an exchange.
constexpr size_t kMaxCandidates = 64;
// The gain of an exchange is the decrease of the sum, over the servers, of squared loads in units
// of the mean. It must exceed this, and this much more for each replica copied in addition.
constexpr double kLeastGain = 1e-3;
constexpr double kGainPerCopy = 4e-3;

// The roles whose numbers are evened out.
enum Role { kReplica, kPrimary, kRoles };
// The loads to balance.
enum Measure { kBytes, kKeys, kMeasures };

struct Server {
  ServerNumber number = 0;
  uint32_t zone = 0;
  std::set<uint32_t> partitions;
  // Sums over its partitions.
  std::array<int64_t, kRoles> cost{};
  std::array<int64_t, kRoles> heat{};
  std::array<double, kMeasures> load{};
};

struct Partition {
  // A server with its data is present.
  bool placed = false;
  std::vector<Index> members;
  // The members in the present placement, and those of them that are in sync.
  std::vector<Index> former;
  std::vector<Index> in_sync;
  Index primary = kNone;
  // A replica is being copied, or the primary hands over: it stays as it is.
  bool in_motion = false;
  // How many ordinary partitions a hot one is worth; 0 if it is not hot.
  std::array<int64_t, kRoles> heat{};
  // How many ordinary partitions it displaces: its heat, or 1 if it is not hot, or if displacing
  // them relieves its server of hardly any load.
  std::array<int64_t, kRoles> cost = {1, 1};
  // In units of the average server's load.
  std::array<double, kMeasures> load{};
};

bool Contains(const std::vector<Index>& all, Index one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The load that a partition adds to a measure of a server that holds it and answers this share of
// its pulls.
double LoadOf(const PartitionLoad& load, int measure, double pulled) {
  if (measure == kBytes) return static_cast<double>(load.parameter_bytes);
  return static_cast<double>(load.keys_pushed) + static_cast<double>(load.keys_pulled) * pulled;
}

bool IsEnough(double total, int measure) {
  return total >= static_cast<double>(measure == kBytes ? kMinBytesToBalance : kMinKeysToBalance);
}

// The present placement, changed move by move until it is the target.
class Planner {
 public:
  Planner(const std::vector<PlacementServer>& servers, uint32_t replicas,
          const PartitionLoads& loads, const Placement& placement)
      : partitions_(placement.partitions.size()) {
    std::map<std::string, uint32_t> zones;
    for (const PlacementServer& server : servers) {
      if (server.draining) continue;
      index_[server.number] = static_cast<Index>(servers_.size());
      const uint32_t zone = zones.emplace(server.zone, zones.size()).first->second;
      Server& added = servers_.emplace_back();
      added.number = server.number;
      added.zone = zone;
    }
    zones_ = zones.size();
    replicas_ = std::min<size_t>(replicas, servers_.size());
    if (servers_.empty()) return;
    all_.resize(servers_.size());
    std::iota(all_.begin(), all_.end(), Index{0});
    if (loads.size() == partitions_.size()) {
      Weigh(loads, kReplica, kBytes);
      Weigh(loads, kReplica, kKeys);
      Weigh(loads, kPrimary, kKeys);
    }
    for (uint32_t p = 0; p < partitions_.size(); ++p) AddPartition(p, placement.partitions[p]);
  }

  PlacementTarget Run() {
    if (servers_.empty()) return Result();
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      if (partitions_[p].placed) SpreadReplicas(p);
    }
    Balance(kReplica);
    for (int i = 0; i < kMaxExchanges && ExchangeOne(); ++i) {
    }
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      if (partitions_[p].placed && partitions_[p].primary == kNone) ChoosePrimary(p);
    }
    Balance(kPrimary);
    return Result();
  }

 private:
  // Sets what a replica, or a primary, of each partition costs, and its load.
  void Weigh(const PartitionLoads& loads, Role role, Measure measure) {
    const double sharers = role == kPrimary ? 1 : static_cast<double>(replicas_);
    std::vector<double> shares;
    for (const PartitionLoad& load : loads) shares.push_back(LoadOf(load, measure, 1 / sharers));
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    if (!IsEnough(total, measure)) return;
    // In units of the average server's load.
    const double all = static_cast<double>(servers_.size()) / sharers;
    // Multiples of 2^-30 have the same sum in any order.
    for (double& share : shares)
      share = std::ldexp(std::round(std::ldexp(share * all / total, 30)), -30);
    std::vector<double> sorted = shares;
    std::sort(sorted.begin(), sorted.end());
    // No partition costs more than all partitions together.
    const auto count = static_cast<double>(loads.size());
    const double ordinary = std::max(sorted[sorted.size() / 2], all / count / count);
    const double hot = std::max(kHotShare, kHotTimes * ordinary);
    double of_ordinary = 1;
    for (const double share : shares) of_ordinary -= share >= hot ? share / all : 0;
    for (size_t p = 0; p < loads.size(); ++p) {
      Partition& part = partitions_[p];
      if (role == kReplica) part.load[measure] = shares[p];
      if (shares[p] < hot) continue;
      const int64_t heat = std::llround(shares[p] / ordinary);
      part.heat[role] = std::max(part.heat[role], heat);
      // Otherwise its server would be hardly less loaded without the ordinary partitions.
      if (of_ordinary >= kTolerance * std::max(1.0, shares[p]))
        part.cost[role] = std::max(part.cost[role], heat);
    }
  }

  void AddPartition(uint32_t p, const ReplicaSet& set) {
    Partition& part = partitions_[p];
    part.placed = set.primary != kNoServer || !set.backups.empty();
    if (!part.placed) return;
    part.in_motion = !set.learners.empty() || set.leaving != kNoServer || set.yielding != kNoServer;
    std::vector<ServerNumber> all;
    if (set.primary != kNoServer) all.push_back(set.primary);
    all.insert(all.end(), set.backups.begin(), set.backups.end());
    const size_t in_sync = all.size();
    for (const ReplicaSet::Learner& learner : set.learners) all.push_back(learner.server);
    // The leaving server stays until enough others are members.
    const auto others = std::count_if(all.begin(), all.end(), [&](ServerNumber server) {
      return server != set.leaving && index_.contains(server);
    });
    const bool leaves = static_cast<size_t>(others) >= replicas_;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto it = index_.find(all[i]);
      if (it == index_.end() || (leaves && all[i] == set.leaving)) continue;
      AddMember(p, it->second);
      if (i == 0) SetPrimary(p, it->second);
      if (i < in_sync) part.in_sync.push_back(it->second);
    }
    part.former = part.members;
  }

  void AddMember(uint32_t p, Index server) {
    partitions_[p].members.push_back(server);
    servers_[server].partitions.insert(p);
    AddLoad(p, server, 1);
  }

  void RemoveMember(uint32_t p, Index server) {
    if (partitions_[p].primary == server) SetPrimary(p, kNone);
    std::erase(partitions_[p].members, server);
    servers_[server].partitions.erase(p);
    AddLoad(p, server, -1);
  }

  void AddLoad(uint32_t p, Index server, int sign) {
    AddCost(p, kReplica, server, sign);
    for (int m = 0; m < kMeasures; ++m) servers_[server].load[m] += sign * partitions_[p].load[m];
  }

  void AddCost(uint32_t p, Role role, Index server, int sign) {
    servers_[server].cost[role] += sign * partitions_[p].cost[role];
    servers_[server].heat[role] += sign * partitions_[p].heat[role];
  }

  // A primary takes its role with it.
  void Move(uint32_t p, Index from, Index to) {
    const bool is_primary = partitions_[p].primary == from;
    RemoveMember(p, from);
    AddMember(p, to);
    if (is_primary) SetPrimary(p, to);
  }

  void SetPrimary(uint32_t p, Index server) {
    Partition& part = partitions_[p];
    if (part.primary != kNone) AddCost(p, kPrimary, part.primary, -1);
    if (server != kNone) AddCost(p, kPrimary, server, 1);
    part.primary = server;
  }

  // The members in the zone of `server`.
  uint32_t InZoneOf(const Partition& part, Index server) const {
    return static_cast<uint32_t>(std::count_if(
        part.members.begin(), part.members.end(),
        [&](Index member) { return servers_[member].zone == servers_[server].zone; }));
  }

  // The server for one more replica: in the zone with the fewest replicas, the server with the
  // lowest cost. Partitions start the search at different servers, so that the backups of one
  // server are spread over all others. kNone if all servers are members.
  Index ServerForReplica(uint32_t p) const {
    const size_t count = servers_.size();
    Index best = kNone;
    std::pair<uint32_t, int64_t> least;
    for (size_t i = 0; i < count; ++i) {
      const auto server = static_cast<Index>((p + p / count + i) % count);
      if (Contains(partitions_[p].members, server)) continue;
      const std::pair key(InZoneOf(partitions_[p], server), servers_[server].cost[kReplica]);
      if (best != kNone && key >= least) continue;
      best = server;
      least = key;
    }
    return best;
  }

  // Brings the partition to its number of replicas, and to as many zones as possible.
  void SpreadReplicas(uint32_t p) {
    const Partition& part = partitions_[p];
    const auto last = [&] {
      const auto key = [&](Index member) {
        return std::tuple(InZoneOf(part, member), !Contains(part.in_sync, member),
                          servers_[member].cost[kReplica], part.primary != member);
      };
      return *std::max_element(part.members.begin(), part.members.end(),
                               [&](Index a, Index b) { return key(a) < key(b); });
    };
    while (part.members.size() > replicas_) RemoveMember(p, last());
    while (part.members.size() < replicas_) AddMember(p, ServerForReplica(p));
    while (true) {
      const Index from = last();
      if (InZoneOf(part, from) < 2) return;
      const Index to = ServerForReplica(p);
      if (to == kNone || InZoneOf(part, from) <= InZoneOf(part, to) + 1) return;
      Move(p, from, to);
    }
  }

  // Whether the replica, or the role of primary, may pass from one server to another.
  bool CanPass(Role role, uint32_t p, Index from, Index to) const {
    const Partition& part = partitions_[p];
    if (part.in_motion) return false;
    if (role == kPrimary) return part.primary == from && Contains(part.members, to);
    return !Contains(part.members, to) &&
           (servers_[from].zone == servers_[to].zone || InZoneOf(part, from) > InZoneOf(part, to));
  }

  void Pass(Role role, uint32_t p, Index from, Index to) {
    if (role == kReplica) Move(p, from, to);
    if (role == kPrimary) SetPrimary(p, to);
  }

  // Hot partitions first, by their heat, then all by their cost: the costs of two servers may
  // differ by little although both hot partitions of a pair are on one of them.
  void Balance(Role role) {
    EvenOut(role, true);
    EvenOut(role, false);
  }

  // Passes partitions from the servers with the highest level to others, as long as that lowers the
  // sum of squared levels.
  void EvenOut(Role role, bool hot) {
    double total = 0;
    for (const Index s : all_) total += static_cast<double>(Level(role, hot, s));
    // A handover pauses writes: small differences of primaries are not worth it.
    int64_t tolerated = 1;
    if (role == kPrimary)
      tolerated +=
          2 * std::llround(std::floor(kTolerance * total / static_cast<double>(servers_.size())));
    std::vector<bool> stuck(servers_.size());
    while (true) {
      Index most = kNone;
      int64_t least = INT64_MAX;
      for (const Index s : all_) {
        least = std::min(least, Level(role, hot, s));
        if (!stuck[s] && (most == kNone || Level(role, hot, s) > Level(role, hot, most))) most = s;
      }
      if (most == kNone || Level(role, hot, most) - least <= tolerated) return;
      tolerated = 1;
      if (PassDirectly(role, hot, most) || (!hot && PassAlongPath(role, most, stuck))) continue;
      stuck[most] = true;
    }
  }

  // The measure that counts: the heat of the hot partitions, or the cost of all.
  int64_t Level(Role role, bool hot, Index server) const {
    return hot ? servers_[server].heat[role] : servers_[server].cost[role];
  }

  // Passes the most expensive partition that helps to the server with the lowest level that can
  // take one. No server becomes hotter than the giver was: the two phases would undo each other's
  // work.
  bool PassDirectly(Role role, bool hot, Index from) {
    std::vector<Index> takers = all_;
    std::stable_sort(takers.begin(), takers.end(),
                     [&](Index a, Index b) { return Level(role, hot, a) < Level(role, hot, b); });
    for (const Index to : takers) {
      const int64_t difference = Level(role, hot, from) - Level(role, hot, to);
      if (difference < 2) return false;
      uint32_t best = kNone;
      std::tuple<int64_t, int, double> least;
      for (const uint32_t p : servers_[from].partitions) {
        const int64_t heat = partitions_[p].heat[role];
        const int64_t moved = hot ? heat : partitions_[p].cost[role];
        if ((hot && heat == 0) || moved >= difference || !CanPass(role, p, from, to)) continue;
        if (heat > 0 && servers_[to].heat[role] + heat > servers_[from].heat[role]) continue;
        const std::tuple key(-moved, Copies(p, from, to), -Gain(p, kNone, from, to));
        if (best != kNone && key >= least) continue;
        best = p;
        least = key;
      }
      if (best == kNone) continue;
      Pass(role, best, from, to);
      return true;
    }
    return false;
  }

  // Where none can pass directly: one ordinary partition from the first server to a second, another
  // from there to a third, and so on, along the shortest path to a server whose cost is lower by 2.
  // If there is none, all servers that were reached are stuck: none of them can lower its cost.
  bool PassAlongPath(Role role, Index from, std::vector<bool>& stuck) {
    std::vector<std::pair<Index, uint32_t>> reached_by(servers_.size(), {kNone, kNone});
    const auto on_path = [&](Index server, uint32_t p) {
      for (; server != from; server = reached_by[server].first) {
        if (reached_by[server].second == p) return true;
      }
      return false;
    };
    std::vector<Index> queue = {from};
    for (size_t i = 0; i < queue.size(); ++i) {
      const Index here = queue[i];
      for (const uint32_t p : servers_[here].partitions) {
        if (partitions_[p].heat[role] > 0 || partitions_[p].in_motion || on_path(here, p)) continue;
        for (const Index to : role == kPrimary ? partitions_[p].members : all_) {
          if (to == from || reached_by[to].first != kNone || !CanPass(role, p, here, to)) continue;
          reached_by[to] = {here, p};
          queue.push_back(to);
          if (servers_[from].cost[role] - servers_[to].cost[role] < 2) continue;
          for (Index s = to; s != from; s = reached_by[s].first)
            Pass(role, reached_by[s].second, reached_by[s].first, s);
          return true;
        }
      }
    }
    for (const Index server : queue) stuck[server] = true;
    return false;
  }

  // The number of additional replicas that a move makes necessary to copy.
  int Copies(uint32_t p, Index from, Index to) const {
    const std::vector<Index>& former = partitions_[p].former;
    return static_cast<int>(Contains(former, from)) - static_cast<int>(Contains(former, to));
  }

  // The decrease of the sum of squared loads if p moves from `from` to `to`, and q, unless kNone,
  // the other way.
  double Gain(uint32_t p, uint32_t q, Index from, Index to) const {
    double gain = 0;
    for (int m = 0; m < kMeasures; ++m) {
      const double moved = partitions_[p].load[m] - (q == kNone ? 0 : partitions_[q].load[m]);
      gain += 2 * moved * (servers_[from].load[m] - servers_[to].load[m] - moved);
    }
    return gain;
  }

  // Exchanges two partitions of a server that differs too much from the mean.
  bool ExchangeOne() {
    for (int m = 0; m < kMeasures; ++m) {
      std::vector<Index> order = all_;
      std::stable_sort(order.begin(), order.end(),
                       [&](Index a, Index b) { return servers_[a].load[m] > servers_[b].load[m]; });
      const Index most = order.front();
      const Index least = order.back();
      if (servers_[most].load[m] - servers_[least].load[m] <= 2 * kTolerance) continue;
      for (size_t i = 1; i < order.size(); ++i) {
        if (Exchange(most, order[order.size() - i]) || Exchange(order[i - 1], least)) return true;
      }
    }
    return false;
  }

  bool Exchange(Index a, Index b) {
    const std::vector<uint32_t> others = Candidates(b, a);
    double best_gain = 0;
    uint32_t best_p = kNone;
    uint32_t best_q = kNone;
    for (const uint32_t p : Candidates(a, b)) {
      for (const uint32_t q : others) {
        const int copies = Copies(p, a, b) + Copies(q, b, a);
        const double gain = Gain(p, q, a, b) - kLeastGain - kGainPerCopy * copies;
        if (gain <= best_gain) continue;
        best_gain = gain;
        best_p = p;
        best_q = q;
      }
    }
    if (best_p == kNone) return false;
    Move(best_p, a, b);
    Move(best_q, b, a);
    return true;
  }

  // Some of the ordinary partitions that can pass. Partitions are hashed, so any choice will do.
  std::vector<uint32_t> Candidates(Index from, Index to) const {
    std::vector<uint32_t> candidates;
    for (const uint32_t p : servers_[from].partitions) {
      if (candidates.size() == kMaxCandidates) break;
      if (partitions_[p].heat[kReplica] == 0 && CanPass(kReplica, p, from, to))
        candidates.push_back(p);
    }
    return candidates;
  }

  void ChoosePrimary(uint32_t p) {
    const Partition& part = partitions_[p];
    const auto key = [&](Index member) {
      return std::tuple(servers_[member].cost[kPrimary], !Contains(part.in_sync, member));
    };
    SetPrimary(p, *std::min_element(part.members.begin(), part.members.end(),
                                    [&](Index a, Index b) { return key(a) < key(b); }));
  }

  PlacementTarget Result() const {
    PlacementTarget target;
    for (const Partition& part : partitions_) {
      std::vector<ServerNumber>& members = target.partitions.emplace_back();
      if (part.members.empty()) continue;
      members.push_back(servers_[part.primary].number);
      for (const Index member : part.members) {
        if (member != part.primary) members.push_back(servers_[member].number);
      }
      target.sharing_a_zone +=
          zones_ > 1 && std::any_of(part.members.begin(), part.members.end(),
                                    [&](Index member) { return InZoneOf(part, member) > 1; });
    }
    return target;
  }

  // The servers that are not draining.
  std::vector<Server> servers_;
  // Their indices.
  std::vector<Index> all_;
  std::map<ServerNumber, Index> index_;
  size_t zones_ = 0;
  size_t replicas_ = 0;
  std::vector<Partition> partitions_;
};

}  // namespace

PlacementTarget ComputeTarget(const std::vector<PlacementServer>& servers, uint32_t replicas,
                              const PartitionLoads& loads, const Placement& placement) {
  return Planner(servers, replicas, loads, placement).Run();
}

void PlaceFirstInZones(const std::vector<PlacementServer>& servers, uint32_t partitions,
                       uint32_t replicas, Placement& placement) {
  std::vector<ServerNumber> numbers;
  for (const PlacementServer& server : servers) numbers.push_back(server.number);
  PlaceFirst(numbers, partitions, replicas, placement);
  const PlacementTarget target = ComputeTarget(servers, replicas, {}, placement);
  for (uint32_t p = 0; p < partitions; ++p) {
    ReplicaSet& set = placement.partitions[p];
    set.last_in_sync = target.partitions[p];
    set.primary = set.last_in_sync.front();
    set.backups.assign(set.last_in_sync.begin() + 1, set.last_in_sync.end());
  }
}

double Imbalance(const std::vector<PlacementServer>& servers, const PartitionLoads& loads,
                 const PlacementTarget& target) {
  const auto count = static_cast<double>(
      std::count_if(servers.begin(), servers.end(),
                    [](const PlacementServer& server) { return !server.draining; }));
  double worst = 1;
  for (int m = 0; m < kMeasures; ++m) {
    std::map<ServerNumber, double> held;
    double total = 0;
    for (size_t p = 0; p < loads.size(); ++p) {
      for (const ServerNumber server : target.partitions[p]) {
        const double load = LoadOf(loads[p], m, server == target.partitions[p].front() ? 1 : 0);
        held[server] += load;
        total += load;
      }
    }
    if (!IsEnough(total, m)) continue;
    for (const auto& [server, load] : held) worst = std::max(worst, load * count / total);
  }
  return worst;
}

}  // namespace pawl
