#include "scheduler/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>

namespace pawl {
namespace {

bool Contains(const std::vector<ServerNumber>& servers, ServerNumber server) {
  return std::find(servers.begin(), servers.end(), server) != servers.end();
}

bool Erase(std::vector<ServerNumber>& servers, ServerNumber server) {
  const auto it = std::find(servers.begin(), servers.end(), server);
  if (it == servers.end()) return false;
  servers.erase(it);
  return true;
}

// The first backup is primary from `epoch` on. What others have learned from its predecessor is void.
void Promote(ReplicaSet& set, uint64_t epoch) {
  set.primary = set.backups.front();
  set.backups.erase(set.backups.begin());
  set.primary_since = epoch;
  set.yielding = kNoServer;
  set.leaving = kNoServer;
  set.learners.clear();
}

// One step's view of who has how much to do.
class Planner {
 public:
  Planner(const std::vector<PlacementServer>& servers, uint32_t replicas, Placement& placement)
      : placement_(placement), epoch_(placement.epoch + 1) {
    for (const PlacementServer& server : servers) servers_[server.number].server = server;
    const auto eligible = std::count_if(servers.begin(), servers.end(),
                                        [](const PlacementServer& server) { return !server.draining; });
    wanted_ = std::min<size_t>(replicas, static_cast<size_t>(eligible));
    for (const ReplicaSet& set : placement.partitions) Count(set);
  }

  bool Step(bool move) {
    for (ReplicaSet& set : placement_.partitions) CompleteYield(set);
    if (!move || wanted_ == 0) return changed_;
    for (ReplicaSet& set : placement_.partitions) {
      if (set.primary == kNoServer) continue;
      DropLearners(set);
      DropReplicas(set);
    }
    bool repaired = true;
    for (ReplicaSet& set : placement_.partitions) {
      if (set.primary == kNoServer) continue;
      if (!Repair(set)) repaired = false;
    }
    if (repaired) Balance();
    return changed_;
  }

 private:
  struct Standing {
    PlacementServer server;
    // Sets that it will be in once what is under way is done.
    uint32_t load = 0;
    uint32_t primaries = 0;
    uint32_t learns = 0;
    // Learners whose primary it is.
    uint32_t feeds = 0;
  };

  // Those that may be given replicas.
  bool Eligible(ServerNumber server) const {
    const auto it = servers_.find(server);
    return it != servers_.end() && !it->second.server.draining;
  }

  void Count(const ReplicaSet& set) {
    const auto member = [&](ServerNumber server) {
      if (server == set.leaving) return;
      const auto it = servers_.find(server);
      if (it != servers_.end()) ++it->second.load;
    };
    if (set.primary != kNoServer) {
      Standing& primary = At(set.primary);
      // One that leaves will not be primary.
      primary.primaries += set.primary != set.leaving;
      primary.feeds += static_cast<uint32_t>(set.learners.size());
      member(set.primary);
    } else if (set.yielding != kNoServer && !set.backups.empty()) {
      ++At(set.backups.front()).primaries;
    }
    for (const ServerNumber backup : set.backups) member(backup);
    for (const ReplicaSet::Learner& learner : set.learners) {
      ++At(learner.server).learns;
      member(learner.server);
    }
  }

  Standing& At(ServerNumber server) {
    const auto it = servers_.find(server);
    if (it == servers_.end()) std::abort();
    return it->second;
  }

  // In sync, eligible and not about to leave.
  size_t Staying(const ReplicaSet& set) const {
    size_t staying = 0;
    if (set.primary != kNoServer) staying += Eligible(set.primary) && set.primary != set.leaving;
    for (const ServerNumber backup : set.backups) staying += Eligible(backup) && backup != set.leaving;
    return staying;
  }

  void CompleteYield(ReplicaSet& set) {
    if (set.primary != kNoServer || set.yielding == kNoServer || set.backups.empty()) return;
    const auto former = servers_.find(set.yielding);
    if (former != servers_.end() && former->second.server.adopted_epoch < set.primary_since) return;
    Promote(set, epoch_);
    changed_ = true;
  }

  // Learners that nobody needs any more.
  void DropLearners(ReplicaSet& set) {
    for (size_t i = set.learners.size(); i-- > 0;) {
      const ServerNumber server = set.learners[i].server;
      if (Eligible(server) && Staying(set) + set.learners.size() <= wanted_) continue;
      Standing& standing = At(server);
      --standing.learns;
      --standing.load;
      --At(set.primary).feeds;
      set.learners.erase(set.learners.begin() + static_cast<std::ptrdiff_t>(i));
      changed_ = true;
    }
    // Whose place nobody takes stays.
    if (set.leaving != kNoServer && Staying(set) + set.learners.size() < wanted_) {
      At(set.leaving).load += 1;
      At(set.leaving).primaries += set.primary == set.leaving;
      set.leaving = kNoServer;
    }
  }

  // Those that draining or moving has made superfluous, once enough others are in sync.
  void DropReplicas(ReplicaSet& set) {
    if (Staying(set) < wanted_) return;
    while (Staying(set) > wanted_) {
      // The one with the most to do; the primary only if it is that by far.
      ServerNumber most = kNoServer;
      for (const ServerNumber backup : set.backups) {
        if (!Eligible(backup) || backup == set.leaving) continue;
        if (most == kNoServer || At(backup).load > At(most).load) most = backup;
      }
      if (set.leaving != kNoServer || most == kNoServer) break;
      if (Eligible(set.primary) && At(set.primary).load > At(most).load) most = set.primary;
      --At(most).load;
      At(most).primaries -= most == set.primary;
      set.leaving = most;
      if (most == set.primary) break;
      Erase(set.backups, most);
      set.leaving = kNoServer;
      changed_ = true;
    }
    for (size_t i = set.backups.size(); i-- > 0;) {
      const ServerNumber backup = set.backups[i];
      if (Eligible(backup) && backup != set.leaving) continue;
      if (backup == set.leaving) {
        set.leaving = kNoServer;
      } else {
        --At(backup).load;
      }
      set.backups.erase(set.backups.begin() + static_cast<std::ptrdiff_t>(i));
      changed_ = true;
    }
    if (Eligible(set.primary) && set.primary != set.leaving) return;
    // Its successor is the backup that is primary of the fewest.
    Standing& former = At(set.primary);
    former.feeds -= static_cast<uint32_t>(set.learners.size());
    if (set.primary != set.leaving) {
      --former.load;
      --former.primaries;
    }
    const auto next = std::min_element(set.backups.begin(), set.backups.end(), [&](ServerNumber a, ServerNumber b) {
      return At(a).primaries < At(b).primaries;
    });
    std::iter_swap(set.backups.begin(), next);
    ++At(set.backups.front()).primaries;
    set.yielding = set.primary;
    set.primary = kNoServer;
    set.primary_since = epoch_;
    set.leaving = kNoServer;
    changed_ = true;
  }

  bool Repair(ReplicaSet& set) {
    while (Staying(set) + set.learners.size() < wanted_) {
      if (!AddLearner(set)) return false;
    }
    return true;
  }

  // On the server with the least to do of those that can take one more.
  bool AddLearner(ReplicaSet& set) {
    Standing& primary = At(set.primary);
    if (primary.feeds >= kMaxLearnersPerServer) return false;
    Standing* least = nullptr;
    for (auto& [number, standing] : servers_) {
      if (standing.server.draining || standing.learns >= kMaxLearnersPerServer) continue;
      if (set.InSync(number) || set.Learns(number)) continue;
      if (least == nullptr || standing.load < least->load) least = &standing;
    }
    if (least == nullptr) return false;
    ++primary.feeds;
    ++least->learns;
    ++least->load;
    set.learners.push_back({least->server.number, epoch_});
    changed_ = true;
    return true;
  }

  // Moves replicas from the server with the most to that with the least until they differ by one at most.
  void Balance() {
    // Whose learners, or whose partitions' primaries, are as many as may be now.
    std::vector<ServerNumber> busy;
    while (true) {
      Standing* most = nullptr;
      Standing* least = nullptr;
      uint32_t fewest_primaries = UINT32_MAX;
      for (auto& [number, standing] : servers_) {
        if (standing.server.draining) continue;
        fewest_primaries = std::min(fewest_primaries, standing.primaries);
        if (least == nullptr || standing.load < least->load) least = &standing;
        if (Contains(busy, number)) continue;
        if (most == nullptr || standing.load > most->load) most = &standing;
      }
      if (most == nullptr || most->load <= least->load + 1) return;
      if (least->learns >= kMaxLearnersPerServer) return;
      if (!Move(*most, *least, most->primaries > fewest_primaries + 1)) busy.push_back(most->server.number);
    }
  }

  bool Move(Standing& from, Standing& to, bool as_primary) {
    ReplicaSet* second_best = nullptr;
    for (ReplicaSet& set : placement_.partitions) {
      if (set.primary == kNoServer || set.leaving != kNoServer || !set.learners.empty()) continue;
      if (!set.InSync(from.server.number) || set.InSync(to.server.number)) continue;
      if (At(set.primary).feeds >= kMaxLearnersPerServer) continue;
      if ((set.primary == from.server.number) == as_primary) {
        Move(set, from, to);
        return true;
      }
      if (second_best == nullptr) second_best = &set;
    }
    if (second_best == nullptr) return false;
    Move(*second_best, from, to);
    return true;
  }

  void Move(ReplicaSet& set, Standing& from, Standing& to) {
    set.leaving = from.server.number;
    --from.load;
    from.primaries -= set.primary == set.leaving;
    ++At(set.primary).feeds;
    ++to.learns;
    ++to.load;
    set.learners.push_back({to.server.number, epoch_});
    changed_ = true;
  }

  Placement& placement_;
  const uint64_t epoch_;
  size_t wanted_ = 0;
  std::map<ServerNumber, Standing> servers_;
  bool changed_ = false;
};

}  // namespace

bool ReplicaSet::InSync(ServerNumber server) const { return primary == server || Contains(backups, server); }

bool ReplicaSet::Learns(ServerNumber server) const {
  return std::any_of(learners.begin(), learners.end(), [&](const Learner& learner) { return learner.server == server; });
}

void PlaceFirst(const std::vector<ServerNumber>& servers, uint32_t partitions, uint32_t replicas,
                Placement& placement) {
  const size_t count = servers.size();
  if (replicas < 1 || replicas > count || !placement.partitions.empty()) std::abort();
  ++placement.epoch;
  placement.partitions.resize(partitions);
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    const size_t primary = partition % count;
    set.primary = servers[primary];
    set.primary_since = placement.epoch;
    set.began = placement.epoch;
    // The backups of one server's partitions are on all others, so that its load falls to all when it dies.
    for (uint32_t i = 0; i + 1 < replicas; ++i) {
      set.backups.push_back(servers[(primary + 1 + (partition / count + i) % (count - 1)) % count]);
    }
  }
}

bool RemoveServers(const std::vector<ServerNumber>& dead, Placement& placement) {
  const uint64_t epoch = placement.epoch + 1;
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    const size_t learners = set.learners.size();
    set.learners.erase(
        std::remove_if(set.learners.begin(), set.learners.end(),
                       [&](const ReplicaSet::Learner& learner) { return Contains(dead, learner.server); }),
        set.learners.end());
    changed = changed || set.learners.size() != learners;
    if (Contains(dead, set.leaving)) set.leaving = kNoServer;

    std::vector<ServerNumber> in_sync = set.backups;
    if (set.primary != kNoServer) in_sync.insert(in_sync.begin(), set.primary);
    // Has all that was ever acknowledged, as long as nobody has taken its place; it is the last to be chosen.
    if (set.yielding != kNoServer) in_sync.push_back(set.yielding);
    std::vector<ServerNumber> alive;
    for (const ServerNumber server : in_sync) {
      if (!Contains(dead, server)) alive.push_back(server);
    }
    if (alive.size() == in_sync.size()) continue;
    changed = true;
    if (alive.empty()) {
      const uint64_t began = set.began;
      set = ReplicaSet();
      set.primary_since = epoch;
      set.began = began;
      set.holders = std::move(in_sync);
    } else if (set.primary != kNoServer && alive.front() == set.primary) {
      set.backups.assign(alive.begin() + 1, alive.end());
    } else if (set.yielding != kNoServer && alive.front() != set.yielding && alive.back() == set.yielding) {
      // Still to be waited for.
      set.backups.assign(alive.begin(), alive.end() - 1);
    } else {
      set.backups = std::move(alive);
      Promote(set, epoch);
    }
  }
  if (changed) placement.epoch = epoch;
  return changed;
}

Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered, bool nothing_yet,
                       Placement& placement) {
  Recovery recovery;
  const uint64_t epoch = placement.epoch + 1;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    if (!Contains(set.holders, server)) continue;
    recovery.changed = true;
    const bool has = std::binary_search(recovered.begin(), recovered.end(), partition);
    if (has || nothing_yet) {
      set.primary = server;
      set.primary_since = epoch;
      if (!has) set.began = epoch;
      set.holders.clear();
      continue;
    }
    Erase(set.holders, server);
    if (set.holders.empty()) recovery.lost.push_back(partition);
  }
  if (recovery.changed) placement.epoch = epoch;
  return recovery;
}

bool BeginAnew(const std::vector<ServerNumber>& servers, Placement& placement) {
  if (servers.empty()) return false;
  const uint64_t epoch = placement.epoch + 1;
  bool changed = false;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    if (set.holders.empty()) continue;
    set.primary = servers[partition % servers.size()];
    set.primary_since = epoch;
    set.began = epoch;
    set.holders.clear();
    changed = true;
  }
  if (changed) placement.epoch = epoch;
  return changed;
}

bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner, uint64_t adopted_epoch,
              Placement& placement) {
  if (partition >= placement.partitions.size()) return false;
  ReplicaSet& set = placement.partitions[partition];
  if (set.primary != primary) return false;
  const auto it = std::find_if(set.learners.begin(), set.learners.end(),
                               [&](const ReplicaSet::Learner& other) { return other.server == learner; });
  // A report by an older routing may speak of a time before the learner was one.
  if (it == set.learners.end() || adopted_epoch < it->since) return false;
  set.learners.erase(it);
  set.backups.push_back(learner);
  ++placement.epoch;
  return true;
}

bool PlacementStep(const std::vector<PlacementServer>& servers, uint32_t replicas, bool move, Placement& placement) {
  const bool changed = Planner(servers, replicas, placement).Step(move);
  if (changed) ++placement.epoch;
  return changed;
}

bool HoldsNothing(ServerNumber server, const Placement& placement) {
  return std::none_of(placement.partitions.begin(), placement.partitions.end(), [&](const ReplicaSet& set) {
    return set.InSync(server) || set.Learns(server) || Contains(set.holders, server) || set.yielding == server;
  });
}

}  // namespace pawl
