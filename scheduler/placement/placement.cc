#include "scheduler/placement/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace pawl {
namespace {

bool Contains(const std::vector<ServerNumber>& servers, ServerNumber server) {
  return std::find(servers.begin(), servers.end(), server) != servers.end();
}

bool Erase(ServerNumber server, std::vector<ServerNumber>& servers) {
  return std::erase(servers, server) > 0;
}

void Add(ServerNumber server, std::vector<ServerNumber>& servers) {
  if (!Contains(servers, server)) servers.push_back(server);
}

void PutSettledFirst(const std::vector<ServerNumber>& unsettled,
                     std::vector<ServerNumber>& servers) {
  if (unsettled.empty()) return;
  std::stable_partition(servers.begin(), servers.end(),
                        [&](ServerNumber server) { return !Contains(unsettled, server); });
}

// Updates confirm_since after a change of the in-sync set at `epoch`.
void NoteInSyncChanged(uint64_t epoch, ReplicaSet& set) {
  set.confirm_since = set.IsUnconfirmed() ? epoch : 0;
}

// The server, no longer in sync, retains its files.
void Retain(ServerNumber server, uint64_t epoch, ReplicaSet& set) {
  Add(server, set.retained);
  set.retained_since = epoch;
}

// REQUIRES: no primary, and none is yielding.
void ElectPrimary(const std::vector<ServerNumber>& unsettled, uint64_t epoch, ReplicaSet& set) {
  if (set.backups.empty() && !set.fallbacks.empty()) {
    PutSettledFirst(unsettled, set.fallbacks);
    set.backups.push_back(set.fallbacks.front());
  }
  if (set.backups.empty()) {
    set.primary_since = epoch;
    set.learners.clear();
    set.leaving = kNoServer;
    return;
  }
  PutSettledFirst(unsettled, set.backups);
  Promote(set, epoch);
}

// Creates the partition, empty, on this server alone.
void Create(ServerNumber server, uint64_t epoch, ReplicaSet& set) {
  set = ReplicaSet();
  set.primary = server;
  set.primary_since = epoch;
  set.created_epoch = epoch;
  set.last_in_sync = {server};
}

}  // namespace

bool ReplicaSet::InSync(ServerNumber server) const {
  return primary == server || Contains(backups, server) || (stays() && yielding == server);
}

ServerNumber ReplicaSet::NextPrimary() const {
  return yielding != kNoServer && !backups.empty() ? backups.front() : primary;
}

bool ReplicaSet::IsLearner(ServerNumber server) const {
  return std::any_of(learners.begin(), learners.end(),
                     [&](const Learner& learner) { return learner.server == server; });
}

bool ReplicaSet::IsUnconfirmed() const {
  return std::any_of(last_in_sync.begin(), last_in_sync.end(),
                     [&](ServerNumber server) { return !InSync(server); });
}

bool ReplicaSet::IsUnavailable() const {
  return primary == kNoServer && yielding == kNoServer && backups.empty();
}

void LeaveInSync(ServerNumber backup, uint64_t epoch, ReplicaSet& set) {
  Erase(backup, set.backups);
  Add(backup, set.fallbacks);
  Retain(backup, epoch, set);
  NoteInSyncChanged(epoch, set);
}

void Promote(ReplicaSet& set, uint64_t epoch) {
  set.primary = set.backups.front();
  set.backups.erase(set.backups.begin());
  Erase(set.primary, set.fallbacks);
  Erase(set.primary, set.retained);
  if (set.yielding != kNoServer && set.yielding != set.primary) {
    if (set.stays()) {
      set.backups.push_back(set.yielding);
    } else {
      Add(set.yielding, set.fallbacks);
      Retain(set.yielding, epoch, set);
    }
  }
  set.primary_since = epoch;
  set.yielding = kNoServer;
  set.yielding_since = 0;
  set.leaving = kNoServer;
  set.learners.clear();
  NoteInSyncChanged(epoch, set);
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
    Create(servers[primary], placement.epoch, set);
    // All other servers hold backups of a server's partitions, so its load spreads over all of them
    // when it dies.
    for (uint32_t i = 0; i + 1 < replicas; ++i) {
      set.backups.push_back(servers[(primary + 1 + (partition / count + i) % (count - 1)) % count]);
      set.last_in_sync.push_back(set.backups.back());
    }
  }
}

bool RemoveServers(const std::vector<ServerNumber>& dead,
                   const std::vector<ServerNumber>& unsettled, Placement& placement) {
  const uint64_t epoch = placement.epoch + 1;
  const auto is_dead = [&](ServerNumber server) { return Contains(dead, server); };
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    changed |= std::erase_if(set.learners, [&](const ReplicaSet::Learner& learner) {
                 return is_dead(learner.server);
               }) > 0;
    changed |= std::erase_if(set.fallbacks, is_dead) > 0;
    if (is_dead(set.leaving)) set.leaving = kNoServer;

    std::vector<ServerNumber> in_sync = set.backups;
    in_sync.push_back(set.primary);
    in_sync.push_back(set.yielding);
    if (std::none_of(in_sync.begin(), in_sync.end(), is_dead)) continue;
    changed = true;
    for (const ServerNumber server : in_sync) {
      if (is_dead(server)) Retain(server, epoch, set);
    }
    std::erase_if(set.backups, is_dead);
    if (is_dead(set.primary)) set.primary = kNoServer;
    if (is_dead(set.yielding)) set.yielding = kNoServer;
    if (set.primary != kNoServer) {
      NoteInSyncChanged(epoch, set);
    } else if (set.yielding == kNoServer) {
      ElectPrimary(unsettled, epoch, set);
    } else if (set.backups.empty()) {
      // It may still serve, so no other server can be primary.
      set.backups.push_back(set.yielding);
      Promote(set, epoch);
    } else {
      PutSettledFirst(unsettled, set.backups);
    }
  }
  if (changed) placement.epoch = epoch;
  return changed;
}

Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered,
                       bool nothing_yet, Placement& placement) {
  Recovery recovery;
  const uint64_t epoch = placement.epoch + 1;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    const bool has = std::binary_search(recovered.begin(), recovered.end(), partition);
    if (!has) Erase(server, set.retained);
    if (!Contains(set.last_in_sync, server)) continue;
    recovery.changed = true;
    if (has) {
      Add(server, set.fallbacks);
      if (set.IsUnavailable()) ElectPrimary({}, epoch, set);
      continue;
    }
    // Nothing was acknowledged, so it still has everything.
    if (nothing_yet) continue;
    Erase(server, set.last_in_sync);
    if (!set.IsUnconfirmed()) set.confirm_since = 0;
    if (set.last_in_sync.empty()) recovery.lost.push_back(partition);
  }
  if (recovery.changed) placement.epoch = epoch;
  return recovery;
}

bool RestartEmpty(const std::vector<ServerNumber>& servers, bool on_any, Placement& placement) {
  const uint64_t epoch = placement.epoch + 1;
  bool changed = false;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    if (!set.IsUnavailable()) continue;
    std::vector<ServerNumber> candidates = servers;
    if (!on_any)
      std::erase_if(candidates,
                    [&](ServerNumber server) { return !Contains(set.last_in_sync, server); });
    if (candidates.empty()) continue;
    Create(candidates[partition % candidates.size()], epoch, set);
    changed = true;
  }
  if (changed) placement.epoch = epoch;
  return changed;
}

bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner,
              uint64_t adopted_epoch, Placement& placement) {
  if (partition >= placement.partitions.size()) return false;
  ReplicaSet& set = placement.partitions[partition];
  if (set.primary != primary) return false;
  const auto it =
      std::find_if(set.learners.begin(), set.learners.end(),
                   [&](const ReplicaSet::Learner& other) { return other.server == learner; });
  // A report by an older routing may predate the learner.
  if (it == set.learners.end() || adopted_epoch < it->since) return false;
  set.learners.erase(it);
  set.backups.push_back(learner);
  Add(learner, set.last_in_sync);
  Erase(learner, set.fallbacks);
  Erase(learner, set.retained);
  if (!set.IsUnconfirmed()) set.confirm_since = 0;
  ++placement.epoch;
  return true;
}

std::set<ServerNumber> DropSilent(ServerNumber primary, const std::vector<SilentFollower>& silent,
                                  uint64_t adopted_epoch, Placement& placement) {
  const uint64_t epoch = placement.epoch + 1;
  std::set<ServerNumber> dropped;
  for (uint32_t index = 0; index < placement.partitions.size(); ++index) {
    ReplicaSet& set = placement.partitions[index];
    if (set.primary != primary || adopted_epoch < set.primary_since) continue;
    for (const SilentFollower& follower : silent) {
      if (follower.partition.value_or(index) != index) continue;
      const ServerNumber server = follower.server;
      if (Contains(set.backups, server)) {
        dropped.insert(server);
        LeaveInSync(server, epoch, set);
      }
      if (std::erase_if(set.learners, [&](const ReplicaSet::Learner& learner) {
            return learner.server == server;
          }) > 0) {
        dropped.insert(server);
      }
      if (set.leaving == server) set.leaving = kNoServer;
    }
  }
  if (!dropped.empty()) placement.epoch = epoch;
  return dropped;
}

Confirmation Confirm(ServerNumber server, uint64_t epoch, uint32_t min_in_sync,
                     Placement& placement) {
  Confirmation confirmation;
  for (ReplicaSet& set : placement.partitions) {
    if (set.primary != server || !set.IsUnconfirmed()) continue;
    if (set.confirm_since > epoch || set.in_sync() < min_in_sync) {
      confirmation.complete = false;
      continue;
    }
    std::erase_if(set.last_in_sync, [&](ServerNumber other) { return !set.InSync(other); });
    set.fallbacks.clear();
    confirmation.changed = true;
  }
  return confirmation;
}

bool ReleaseRetained(const std::vector<PlacementServer>& servers, uint32_t replicas,
                     Placement& placement) {
  const auto acts_by = [&](ServerNumber number, uint64_t epoch) {
    return std::any_of(servers.begin(), servers.end(), [&](const PlacementServer& server) {
      return server.number == number && server.adopted_epoch >= epoch;
    });
  };
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    if (set.primary == kNoServer || set.IsUnconfirmed()) continue;
    changed |= set.confirm_since != 0;
    set.confirm_since = 0;
    if (set.retained.empty() || set.in_sync() < replicas) continue;
    if (!std::all_of(set.last_in_sync.begin(), set.last_in_sync.end(),
                     [&](ServerNumber server) { return acts_by(server, set.retained_since); })) {
      continue;
    }
    set.retained.clear();
    changed = true;
  }
  if (changed) ++placement.epoch;
  return changed;
}

std::vector<uint32_t> HeldOnlyBy(ServerNumber server, const std::set<ServerNumber>& present,
                                 const Placement& placement) {
  std::vector<uint32_t> partitions;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    const ReplicaSet& set = placement.partitions[partition];
    const auto has_data = [&](ServerNumber other) {
      return other != server && present.contains(other) &&
             (set.InSync(other) || other == set.yielding || Contains(set.fallbacks, other));
    };
    if (Contains(set.last_in_sync, server) && std::ranges::none_of(set.last_in_sync, has_data))
      partitions.push_back(partition);
  }
  return partitions;
}

RetainedReplicas RetainedBy(ServerNumber server, const Placement& placement) {
  RetainedReplicas retained;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    const ReplicaSet& set = placement.partitions[partition];
    if (!Contains(set.retained, server)) continue;
    retained.partitions.push_back(partition);
    if (Contains(set.last_in_sync, server)) retained.needed.push_back(partition);
  }
  return retained;
}

std::vector<uint32_t> ReleaseServer(ServerNumber server, bool needed, Placement& placement) {
  std::vector<uint32_t> lost;
  bool changed = false;
  for (uint32_t partition = 0; partition < placement.partitions.size(); ++partition) {
    ReplicaSet& set = placement.partitions[partition];
    if (!Contains(set.retained, server)) continue;
    if (Contains(set.last_in_sync, server)) {
      if (!needed) continue;
      Erase(server, set.last_in_sync);
      Erase(server, set.fallbacks);
      if (!set.IsUnconfirmed()) set.confirm_since = 0;
      if (set.last_in_sync.empty()) lost.push_back(partition);
    }
    Erase(server, set.retained);
    changed = true;
  }
  if (changed) ++placement.epoch;
  return lost;
}

}  // namespace pawl
