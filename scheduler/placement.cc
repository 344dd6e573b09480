#include "scheduler/placement.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

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

void PutSettledFirst(const std::vector<ServerNumber>& unsettled, std::vector<ServerNumber>& servers) {
  if (unsettled.empty()) return;
  std::stable_partition(servers.begin(), servers.end(), [&](ServerNumber server) { return !Contains(unsettled, server); });
}

}  // namespace

bool ReplicaSet::InSync(ServerNumber server) const { return primary == server || Contains(backups, server); }

bool ReplicaSet::Learns(ServerNumber server) const {
  return std::any_of(learners.begin(), learners.end(), [&](const Learner& learner) { return learner.server == server; });
}

void Promote(ReplicaSet& set, uint64_t epoch) {
  set.primary = set.backups.front();
  set.backups.erase(set.backups.begin());
  set.primary_since = epoch;
  set.yielding = kNoServer;
  set.leaving = kNoServer;
  set.learners.clear();
}

void PlaceFirst(const std::vector<ServerNumber>& servers, uint32_t partitions, uint32_t replicas, Placement& placement) {
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

bool RemoveServers(const std::vector<ServerNumber>& dead, const std::vector<ServerNumber>& unsettled, Placement& placement) {
  const uint64_t epoch = placement.epoch + 1;
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    const size_t learners = set.learners.size();
    set.learners.erase(std::remove_if(set.learners.begin(), set.learners.end(),
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
      PutSettledFirst(unsettled, set.backups);
    } else {
      set.backups = std::move(alive);
      PutSettledFirst(unsettled, set.backups);
      Promote(set, epoch);
    }
  }
  if (changed) placement.epoch = epoch;
  return changed;
}

Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered, bool nothing_yet, Placement& placement) {
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

bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner, uint64_t adopted_epoch, Placement& placement) {
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

bool DropSilent(ServerNumber primary, const std::set<ServerNumber>& silent, uint64_t adopted_epoch, Placement& placement) {
  bool changed = false;
  for (ReplicaSet& set : placement.partitions) {
    if (set.primary != primary || adopted_epoch < set.primary_since) continue;
    const size_t before = set.backups.size() + set.learners.size();
    set.backups.erase(
        std::remove_if(set.backups.begin(), set.backups.end(), [&](ServerNumber backup) { return silent.contains(backup); }),
        set.backups.end());
    set.learners.erase(std::remove_if(set.learners.begin(), set.learners.end(),
                                      [&](const ReplicaSet::Learner& learner) { return silent.contains(learner.server); }),
                       set.learners.end());
    if (silent.contains(set.leaving)) set.leaving = kNoServer;
    changed = changed || set.backups.size() + set.learners.size() < before;
  }
  if (changed) ++placement.epoch;
  return changed;
}

}  // namespace pawl
