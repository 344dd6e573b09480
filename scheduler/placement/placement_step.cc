#include "scheduler/placement/placement_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>

#include "absl/algorithm/container.h"

namespace pawl {
namespace {

// One step, with the number of learners of each server.
class Stepper {
 public:
  Stepper(const PlacementTarget& target, const std::vector<PlacementServer>& servers,
          const SilentPairs& silent, Placement& placement)
      : target_(target), silent_(silent), placement_(placement), epoch_(placement.epoch + 1) {
    for (const PlacementServer& server : servers) {
      standings_[server.number] = {
          .draining = server.draining, .settled = server.settled, .writes = server.writes};
    }
    for (const ReplicaSet& set : placement.partitions) {
      handovers_ += set.yielding != kNoServer;
      for (const ReplicaSet::Learner& learner : set.learners) {
        ++At(learner.server).learns;
        if (set.primary != kNoServer) ++At(set.primary).feeds;
      }
    }
  }

  bool Step(StepScope scope) {
    for (size_t p = 0; p < placement_.partitions.size(); ++p) {
      ReplicaSet& set = placement_.partitions[p];
      if (set.primary != kNoServer) LeaveUnwritable(target_.partitions[p], set);
    }
    if (scope == StepScope::kAll) DropSuperfluous();
    // Each urgency waits until all learners of the one before have started.
    for (const Urgency urgency : {Urgency::kRepair, Urgency::kDrain, Urgency::kBalance}) {
      bool all_started = true;
      for (size_t p = 0; p < placement_.partitions.size(); ++p) {
        ReplicaSet& set = placement_.partitions[p];
        const std::vector<ServerNumber>& wanted = target_.partitions[p];
        if (set.primary == kNoServer || wanted.empty() || UrgencyOf(set, wanted) != urgency)
          continue;
        all_started = AddLearners(set, wanted) && all_started;
      }
      if (!all_started || scope == StepScope::kRepairs) break;
    }
    return changed_;
  }

 private:
  enum class Urgency { kRepair, kDrain, kBalance };
  struct Standing {
    bool draining = false;
    bool settled = true;
    bool writes = true;
    uint32_t learns = 0;
    // Learners whose primary it is.
    uint32_t feeds = 0;
  };

  Standing& At(ServerNumber server) {
    const auto it = standings_.find(server);
    if (it == standings_.end()) std::abort();
    return it->second;
  }

  static bool AllInSync(const ReplicaSet& set, const std::vector<ServerNumber>& wanted) {
    return absl::c_all_of(wanted, [&](ServerNumber server) { return set.InSync(server); });
  }

  Urgency UrgencyOf(const ReplicaSet& set, const std::vector<ServerNumber>& wanted) {
    // A primary that cannot write needs a successor.
    if (1 + set.backups.size() < wanted.size() || !At(set.primary).writes) return Urgency::kRepair;
    const bool drains =
        At(set.primary).draining ||
        absl::c_any_of(set.backups, [&](ServerNumber server) { return At(server).draining; });
    return drains ? Urgency::kDrain : Urgency::kBalance;
  }

  void LeaveUnwritable(const std::vector<ServerNumber>& wanted, ReplicaSet& set) {
    const auto writes = [&](ServerNumber server) { return At(server).writes; };
    if (At(set.primary).writes) {
      for (const ServerNumber backup : std::vector<ServerNumber>(set.backups)) {
        if (writes(backup)) continue;
        LeaveInSync(backup, epoch_, set);
        changed_ = true;
      }
      return;
    }
    auto successor = wanted.empty() ? set.backups.end() : absl::c_find(set.backups, wanted.front());
    if (successor == set.backups.end() || !writes(*successor))
      successor = absl::c_find_if(set.backups, writes);
    if (successor == set.backups.end() || handovers_ >= kMaxHandovers) return;
    HandOver(successor, /*leaves=*/true, set);
  }

  // `leaves`: the primary does not become a backup. REQUIRES: handovers_ < kMaxHandovers.
  void HandOver(std::vector<ServerNumber>::iterator successor, bool leaves, ReplicaSet& set) {
    std::iter_swap(set.backups.begin(), successor);
    set.yielding = set.primary;
    set.yielding_since = epoch_;
    set.primary = kNoServer;
    set.leaving = leaves ? set.yielding : kNoServer;
    ++handovers_;
    changed_ = true;
  }

  void DropSuperfluous() {
    for (size_t p = 0; p < placement_.partitions.size(); ++p) {
      ReplicaSet& set = placement_.partitions[p];
      const std::vector<ServerNumber>& wanted = target_.partitions[p];
      if (set.primary == kNoServer || wanted.empty()) continue;
      DropLearners(set, wanted);
      DropReplicas(set, wanted);
    }
  }

  void DropLearners(ReplicaSet& set, const std::vector<ServerNumber>& wanted) {
    for (size_t i = set.learners.size(); i-- > 0;) {
      const ServerNumber server = set.learners[i].server;
      if (absl::c_linear_search(wanted, server)) continue;
      --At(server).learns;
      --At(set.primary).feeds;
      set.learners.erase(set.learners.begin() + static_cast<std::ptrdiff_t>(i));
      changed_ = true;
    }
    if (!set.InSync(set.leaving) || absl::c_linear_search(wanted, set.leaving))
      set.leaving = kNoServer;
  }

  // Once all wanted servers are in sync, drops the others, and hands over to the wanted primary.
  void DropReplicas(ReplicaSet& set, const std::vector<ServerNumber>& wanted) {
    if (!AllInSync(set, wanted)) return;
    for (const ServerNumber backup : std::vector<ServerNumber>(set.backups)) {
      if (absl::c_linear_search(wanted, backup)) continue;
      if (backup == set.leaving) set.leaving = kNoServer;
      // It stays a fallback until the primary confirms: the primary and its disk may be dead,
      // undetected.
      LeaveInSync(backup, epoch_, set);
      changed_ = true;
    }
    if (set.primary == wanted.front() || handovers_ >= kMaxHandovers) return;
    // No server would serve the partition until the successor is settled.
    if (!At(wanted.front()).settled) return;
    const bool leaves = !absl::c_linear_search(wanted, set.primary);
    // Pushes would wait for the former primary, and it would leave the in-sync set.
    if (!leaves && silent_.contains({wanted.front(), set.primary})) return;
    HandOver(absl::c_find(set.backups, wanted.front()), leaves, set);
  }

  // Returns whether all wanted servers are in sync or learning.
  bool AddLearners(ReplicaSet& set, const std::vector<ServerNumber>& wanted) {
    bool all = true;
    for (const ServerNumber server : wanted) {
      if (set.InSync(server) || set.IsLearner(server) || silent_.contains({set.primary, server}))
        continue;
      if (At(set.primary).feeds >= kMaxLearnersPerServer ||
          At(server).learns >= kMaxLearnersPerServer) {
        all = false;
        continue;
      }
      ++At(set.primary).feeds;
      ++At(server).learns;
      set.learners.push_back({server, epoch_});
      changed_ = true;
    }
    // Record whose place the learner takes, so that a restarted scheduler continues the same move.
    if (set.learners.empty() || set.leaving != kNoServer) return all;
    const auto is_superfluous = [&](ServerNumber server) {
      return !At(server).draining && !absl::c_linear_search(wanted, server);
    };
    if (is_superfluous(set.primary)) set.leaving = set.primary;
    for (const ServerNumber backup : set.backups) {
      if (is_superfluous(backup)) set.leaving = backup;
    }
    return all;
  }

  const PlacementTarget& target_;
  const SilentPairs& silent_;
  Placement& placement_;
  const uint64_t epoch_;
  std::map<ServerNumber, Standing> standings_;
  uint32_t handovers_ = 0;
  bool changed_ = false;
};

}  // namespace

bool CompleteHandovers(const std::vector<PlacementServer>& servers, Placement& placement) {
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    if (set.primary != kNoServer || set.yielding == kNoServer || set.backups.empty()) continue;
    const auto former =
        absl::c_find_if(servers, [&](const auto& server) { return server.number == set.yielding; });
    if (former != servers.end() && former->adopted_epoch < set.yielding_since) continue;
    Promote(set, placement.epoch + 1);
    changed = true;
  }
  if (changed) ++placement.epoch;
  return changed;
}

bool StepTowards(const PlacementTarget& target, const std::vector<PlacementServer>& servers,
                 const SilentPairs& silent, Placement& placement, StepScope scope) {
  const bool changed = Stepper(target, servers, silent, placement).Step(scope);
  if (changed) ++placement.epoch;
  return changed;
}

MovesLeft RemainingMoves(const PlacementTarget& target, const Placement& placement) {
  MovesLeft left;
  for (uint32_t p = 0; p < placement.partitions.size(); ++p) {
    const ReplicaSet& set = placement.partitions[p];
    left.handovers += set.yielding != kNoServer;
    left.in_progress += static_cast<uint32_t>(set.learners.size());
    if (p >= target.partitions.size() || target.partitions[p].empty()) continue;
    for (const ServerNumber server : target.partitions[p]) {
      if (!set.InSync(server)) left.partitions.push_back(p);
    }
    left.handovers += set.primary != kNoServer && set.primary != target.partitions[p].front();
  }
  return left;
}

}  // namespace pawl
