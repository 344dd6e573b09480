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

#include "absl/algorithm/container.h"

namespace pawl {
namespace {

// A hot partition costs at least this many times the median one, and at least this share of what a
// server holds on average. Exchanges of pairs even out smaller differences.
constexpr double kHotTimes = 4;
constexpr double kHotShare = 0.25;
// Exchanges in one target. Each copies up to two replicas.
constexpr int kMaxExchanges = 512;
// Partitions of a server that are considered for one move.
constexpr size_t kMaxCandidates = 64;
// What an exchange must be worth (Planner::Worth), and what one replica to copy takes off that.
constexpr double kLeastWorth = 1e-3;
constexpr double kCopyCost = 4e-3;

// The measures of a partition. Those of a server are the sums over its partitions.
enum Measure {
  // In units of the average server's load.
  kBytes,
  kKeys,
  // How many ordinary partitions a hot one is worth; 0 if it is not hot.
  kHeat,
  // How many ordinary partitions it displaces: its heat, or 1 if it is not hot, or if displacing
  // them relieves its server of hardly any load.
  kCost,
  kMeasures
};
using Measures = std::array<double, kMeasures>;

struct Partition;

struct Server {
  ServerNumber number = 0;
  size_t zone = 0;
  // Those that it has in the role that is evened out.
  std::set<Partition*> partitions;
  Measures level{};
};

struct Partition {
  bool IsOn(const Server* server) const { return absl::c_linear_search(members, server); }
  bool WasInSync(const Server* server) const { return present->InSync(server->number); }
  // The members in the zone of `server`.
  auto InZoneOf(const Server* server) const {
    return absl::c_count_if(members, [&](Server* member) { return member->zone == server->zone; });
  }

  const ReplicaSet* present = nullptr;
  // The primary first.
  std::vector<Server*> members;
  Measures measures{};
};

// The present placement, changed move by move until it is the target.
class Planner {
 public:
  Planner(const std::vector<PlacementServer>& servers, uint32_t replicas,
          const PartitionLoads& loads, const Placement& placement)
      : loads_(loads), partitions_(placement.partitions.size()) {
    for (const PlacementServer& server : servers) {
      if (server.draining) continue;
      Server& added = servers_[server.number];
      added.number = server.number;
      added.zone = zones_.emplace(server.zone, zones_.size()).first->second;
      all_.push_back(&added);
    }
    replicas_ = std::min<size_t>(replicas, all_.size());
    for (size_t p = 0; p < partitions_.size(); ++p) {
      partitions_[p].present = &placement.partitions[p];
      FindMembers(partitions_[p]);
    }
  }

  PlacementTarget Run() {
    if (all_.empty()) return Result(0);
    Begin(kReplica);
    for (Partition& p : partitions_) {
      for (Server* member : p.members) Hold(&p, member, 1);
    }
    const double highest = HighestLoad();
    for (Partition& p : partitions_) SpreadReplicas(p);
    Balance(1);
    const double relief = highest - HighestLoad();
    Begin(kPrimary);
    ChoosePrimaries();
    // A handover pauses writes: small differences of primaries are not worth it.
    Balance(1 + 2 * kTolerance * partitions_.size() / all_.size());
    return Result(relief);
  }

 private:
  // What is passed from server to server.
  enum Role { kReplica, kPrimary };

  void FindMembers(Partition& p) {
    const auto add = [&](ServerNumber number) {
      const auto it = servers_.find(number);
      if (it != servers_.end()) p.members.push_back(&it->second);
    };
    add(p.present->primary);
    for (const ServerNumber backup : p.present->backups) add(backup);
    if (p.present->stays()) add(p.present->yielding);
    for (const ReplicaSet::Learner& learner : p.present->learners) add(learner.server);
    // The leaving server stays until enough others are members.
    if (p.members.size() > replicas_)
      std::erase_if(p.members, [&](Server* s) { return s->number == p.present->leaving; });
  }

  void Begin(Role role) {
    role_ = role;
    for (Server* server : all_) {
      server->partitions.clear();
      server->level = {};
    }
    for (Partition& p : partitions_) p.measures = {0, 0, 0, 1};
    if (role == kReplica) Weigh(kBytes, replicas_);
    Weigh(kKeys, role == kReplica ? replicas_ : 1);
  }

  // Sets this load of each partition, and the heat and cost of those that it makes hot, if so many
  // servers share its pulls.
  void Weigh(Measure m, double sharers) {
    if (loads_.size() != partitions_.size()) return;
    std::vector<double> loads;
    for (const PartitionLoad& load : loads_) {
      loads.push_back(m == kBytes ? load.parameter_bytes
                                  : load.keys_pushed + load.keys_pulled / sharers);
    }
    const double total = absl::c_accumulate(loads, 0.0);
    if (total < (m == kBytes ? kMinBytesToBalance : kMinKeysToBalance)) return;
    // The load of all partitions, in units of the average server's load.
    const double all = all_.size() / sharers;
    // Multiples of 2^-30 have the same sum in any order.
    for (double& load : loads)
      load = std::ldexp(std::round(std::ldexp(load * all / total, 30)), -30);
    std::vector<double> sorted = loads;
    absl::c_sort(sorted);
    const double median = sorted[sorted.size() / 2];
    const double hot = std::max(kHotShare, kHotTimes * median);
    const double of_ordinary =
        std::accumulate(sorted.begin(), absl::c_lower_bound(sorted, hot), 0.0) / all;
    for (size_t i = 0; i < loads.size(); ++i) {
      Measures& measures = partitions_[i].measures;
      measures[m] = loads[i];
      if (loads[i] < hot) continue;
      // The median may be 0.
      const double heat = std::min<double>(std::round(loads[i] / median), loads.size());
      measures[kHeat] = std::max(measures[kHeat], heat);
      // Otherwise its server would be hardly less loaded without the ordinary partitions.
      if (of_ordinary >= kTolerance * std::max(1.0, loads[i]))
        measures[kCost] = std::max(measures[kCost], heat);
    }
  }

  // The highest share of the bytes, or keys, of one server.
  double HighestLoad() const {
    double highest = 0;
    for (const Server* server : all_)
      highest = std::max({highest, server->level[kBytes], server->level[kKeys]});
    return highest;
  }

  // The server gets the partition, or, with a sign of -1, loses it.
  void Hold(Partition* p, Server* server, int sign) {
    for (int m = 0; m < kMeasures; ++m) server->level[m] += sign * p->measures[m];
    if (sign > 0) server->partitions.insert(p);
    if (sign < 0) server->partitions.erase(p);
  }

  void Pass(Partition* p, Server* from, Server* to) {
    if (role_ == kReplica) absl::c_replace(p->members, from, to);
    if (role_ == kPrimary) std::iter_swap(p->members.begin(), absl::c_find(p->members, to));
    Hold(p, from, -1);
    Hold(p, to, 1);
    moved_ = true;
  }

  // The server for one more replica: in the zone with the fewest replicas, the server with the
  // lowest cost. Partitions start the search at different servers, so that the backups of one
  // server are spread over all others. A member only if all are members.
  Server* ServerForReplica(const Partition& p) const {
    const size_t count = all_.size();
    const size_t number = &p - partitions_.data();
    std::tuple best(true, INT64_MAX, 0.0, size_t{0}, all_.front());
    for (size_t i = 0; i < count; ++i) {
      Server* const s = all_[(number + number / count + i) % count];
      best = std::min(best, std::tuple(p.IsOn(s), p.InZoneOf(s), s->level[kCost], i, s));
    }
    return std::get<Server*>(best);
  }

  // Brings the partition to its number of replicas, and to as many zones as possible: adds the best
  // server and removes the worst, until that is the same.
  void SpreadReplicas(Partition& p) {
    // No server with its data is present.
    if (p.present->in_sync() == 0) return;
    const auto key = [&](Server* member) {
      return std::tuple(p.InZoneOf(member), member == p.members.back(), !p.WasInSync(member),
                        member->level[kCost], member != p.members.front());
    };
    Server* added = nullptr;
    Server* removed = nullptr;
    do {
      added = ServerForReplica(p);
      if (!p.IsOn(added)) {
        p.members.push_back(added);
        Hold(&p, added, 1);
      }
      while (p.members.size() > replicas_) {
        removed =
            *absl::c_max_element(p.members, [&](auto* a, auto* b) { return key(a) < key(b); });
        std::erase(p.members, removed);
        Hold(&p, removed, -1);
      }
    } while (added != removed && p.members.size() < all_.size());
  }

  // The primary, or its successor, stays if it is a member. Otherwise the member with the fewest
  // primaries follows.
  void ChoosePrimaries() {
    for (const bool stays : {true, false}) {
      for (Partition& p : partitions_) {
        auto it = absl::c_find_if(p.members,
                                  [&](Server* s) { return s->number == p.present->NextPrimary(); });
        if (p.members.empty() || stays != (it != p.members.end())) continue;
        if (!stays) {
          it = absl::c_min_element(
              p.members, [](Server* a, Server* b) { return a->level[kCost] < b->level[kCost]; });
        }
        std::iter_swap(p.members.begin(), it);
        Hold(&p, p.members.front(), 1);
      }
    }
  }

  // Repeats until nothing moves, so that the target is its own target.
  void Balance(double tolerated) {
    do {
      moved_ = false;
      EvenOut(kHeat, 1);
      EvenOut(kCost, tolerated);
      if (role_ == kReplica) EvenOut(kBytes, 2 * kTolerance);
      if (role_ == kReplica) EvenOut(kKeys, 2 * kTolerance);
    } while (moved_);
  }

  // Moves partitions from the servers with the highest level until the levels differ by no more
  // than `tolerated`, or no move lowers the sum of their squares.
  void EvenOut(Measure m, double tolerated) {
    std::vector<Server*> order = all_;
    while (!order.empty()) {
      absl::c_stable_sort(order, [&](Server* a, Server* b) { return a->level[m] < b->level[m]; });
      if (order.back()->level[m] - order.front()->level[m] <= tolerated) return;
      if (m == kCost) tolerated = 1;
      if (MoveFrom(m, order.back(), order)) continue;
      // The others differ less in their loads.
      if (m == kBytes || m == kKeys) return;
      order.pop_back();
    }
  }

  // Passes a partition to the first of the servers where that helps: a hot one, or, to even out
  // costs, an ordinary one. To even out loads, exchanges two ordinary ones.
  bool MoveFrom(Measure m, Server* from, const std::vector<Server*>& servers) {
    const bool exchange = m == kBytes || m == kKeys;
    if (exchange && exchanges_ == kMaxExchanges) return false;
    for (Server* to : servers) {
      Partition* const none = nullptr;
      std::tuple best(0.0, 0.0, exchange ? kLeastWorth : HUGE_VAL, none, none);
      const std::vector<Partition*> others =
          exchange ? Candidates(false, to, from) : std::vector{none};
      for (Partition* p : Candidates(m == kHeat, from, to)) {
        for (Partition* q : others) {
          best = std::max(best, std::tuple(Gain(kHeat, p, q, from, to), Gain(kCost, p, q, from, to),
                                           Worth(p, q, from, to), p, q));
        }
      }
      const auto& [heat, cost, worth, p, q] = best;
      if (p == nullptr) continue;
      Pass(p, from, to);
      if (q != nullptr) Pass(q, to, from);
      exchanges_ += exchange;
      return true;
    }
    return false;
  }

  // Some of the hot or ordinary partitions that can pass. Partitions are hashed, so any choice will
  // do.
  std::vector<Partition*> Candidates(bool hot, Server* from, Server* to) const {
    std::vector<Partition*> candidates;
    for (Partition* p : from->partitions) {
      if (candidates.size() == kMaxCandidates) break;
      if ((p->measures[kHeat] > 0) == hot && CanPass(*p, from, to)) candidates.push_back(p);
    }
    return candidates;
  }

  bool CanPass(const Partition& p, Server* from, Server* to) const {
    const ReplicaSet& set = *p.present;
    // The primary hands over, or a replica is being copied.
    if (set.yielding != kNoServer) return false;
    if (role_ == kPrimary) return p.IsOn(to);
    if (!set.learners.empty() || set.leaving != kNoServer) return false;
    return !p.IsOn(to) && (from->zone == to->zone || p.InZoneOf(from) > p.InZoneOf(to));
  }

  // The decrease of the sum of squared levels if p passes and q, unless null, returns.
  double Gain(Measure m, Partition* p, Partition* q, Server* from, Server* to) const {
    const double moved = p->measures[m] - (q == nullptr ? 0 : q->measures[m]);
    return 2 * moved * (from->level[m] - to->level[m] - moved);
  }

  // The gain in load, less the cost of replicas to copy.
  double Worth(Partition* p, Partition* q, Server* from, Server* to) const {
    int copies = p->WasInSync(from) - p->WasInSync(to);
    if (q != nullptr) copies += q->WasInSync(to) - q->WasInSync(from);
    return Gain(kBytes, p, q, from, to) + Gain(kKeys, p, q, from, to) - kCopyCost * copies;
  }

  PlacementTarget Result(double relief) const {
    PlacementTarget target{.partitions = {}, .relief = relief};
    for (const Partition& p : partitions_) {
      std::vector<ServerNumber>& numbers = target.partitions.emplace_back();
      for (const Server* member : p.members) numbers.push_back(member->number);
      target.sharing_a_zone += zones_.size() > 1 && absl::c_any_of(p.members, [&](Server* member) {
                                 return p.InZoneOf(member) > 1;
                               });
    }
    return target;
  }

  const PartitionLoads& loads_;
  // The servers that are not draining.
  std::map<ServerNumber, Server> servers_;
  std::vector<Server*> all_;
  std::map<std::string, size_t> zones_;
  size_t replicas_ = 0;
  std::vector<Partition> partitions_;
  Role role_ = kReplica;
  bool moved_ = false;
  int exchanges_ = 0;
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

}  // namespace pawl
