// A replica of a partition that this server hosts, with its lock, what follows it, and those who wait for it.
#ifndef PAWL_SERVER_REPLICA_H_
#define PAWL_SERVER_REPLICA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "server/replication/lane.h"
#include "server/shard/partition.h"
#include "server/waiting_call.h"

namespace pawl {

// Entries that are kept for a follower while its snapshot is on the way, and those on the way to a learner that falls
// behind. Beyond it, it gets another snapshot.
inline constexpr size_t kMaxLearnerBacklogBytes = size_t{256} << 20;

// What a heartbeat tells of a replica.
struct ReplicaFigures {
  PartitionCounters counters;
  uint64_t pushes_deduplicated = 0;
  uint64_t staleness_max = 0;
  uint64_t keys_pulled = 0;
  uint64_t rows = 0;
  uint64_t parameter_bytes = 0;
  uint64_t step = 0;
  bool is_primary = false;
};

enum class ReplicaRole {
  kPrimary,
  kBackup,
  kLearner,
  // Serves nothing: the partition has no primary, and this server may be the last that has its data.
  kHeld,
  // Not hosted here any more: whoever still has the object finds this.
  kDropped,
};

// Another replica of the same partition, as its primary sees it.
struct Follower {
  enum class State {
    // It followed the primary before: it has been asked what it has of the changes that this primary has too.
    kAsked,
    // It has nothing, or nobody knows what it has: it needs a snapshot.
    kNeedsSnapshot,
    kInstalling,
    // It has everything up to `acked`, and all later entries are on the lane.
    kStreaming,
  };
  // A process in one life.
  std::string node;
  uint64_t incarnation = 0;
  std::shared_ptr<ReplicationLane> lane;
  State state = State::kNeedsSnapshot;
  // Nothing is acknowledged that it does not have: a backup, or a learner that has been reported as caught up.
  bool counts = false;
  // By the routing: still a learner.
  bool is_learner = false;
  // By the routing: since which epoch it learns, or learned before it became a backup.
  uint64_t learner_since = 0;
  uint64_t acked = 0;
  // Snapshots that did not arrive, or were not enough, since the last one that was; the next is not sent before
  // `install_from`, which is set when it is looked at.
  uint32_t failed_installs = 0;
  std::optional<MonotonicTime> install_from;
  // kAsked: of the last change before `behind_snapshot`.
  uint64_t asked_at = 0;
  // kInstalling: which attempt, and the entries behind the snapshot. kAsked: the entries since.
  uint64_t install = 0;
  std::vector<ReplicationLane::Entry> behind_snapshot;
  size_t bytes_behind_snapshot = 0;
};

struct Replica;

// A primary's share of a consistent cut, before it is taken.
struct Cut {
  // The partition is cut at the moment when it reaches this step.
  uint64_t step = 0;
  // Called then, under the replica's lock.
  std::function<void(const std::shared_ptr<Replica>&)> take;
};

// The members of a replica. Whoever holds `mu` may take the lane's and the log's locks.
//
// Invariants:
// 1. Only a primary gives log indices, and each follower is handed every entry after its snapshot in order.
// 2. A change is committed when the own log and every follower that counts have it; it is
//    acknowledged only then, and so is a duplicate of it.
struct Replica {
  // Logs: changes are durable when `OnDurable` says so; otherwise at once.
  Replica(uint32_t index, bool logs) : index(index), logs(logs) {}

  const uint32_t index;
  const bool logs;

  Mutex mu;
  ReplicaRole role PAWL_GUARDED_BY(mu) = ReplicaRole::kLearner;
  // Null: a learner before its snapshot.
  std::unique_ptr<Partition> partition PAWL_GUARDED_BY(mu);
  // The routing epoch at which the present primary, which may be this one, became it.
  uint64_t primary_since PAWL_GUARDED_BY(mu) = 0;
  // Of a backup or learner: the primary_since of the primary that sent the last snapshot; 0 if there was none.
  uint64_t installed_since PAWL_GUARDED_BY(mu) = 0;
  // The last reign (by its primary_since) of whose primary's changes this replica is known to have the beginning; 0: of none. Two
  // replicas for which it is the same have the same changes, or one has the beginning of the other's.
  uint64_t ordered_since PAWL_GUARDED_BY(mu) = 0;
  // Changes up to this one did not come one by one, but in a snapshot.
  uint64_t snapshot_index PAWL_GUARDED_BY(mu) = 0;
  // Of a primary: ordered_since and the last change of the time before it was one.
  uint64_t inherited_since PAWL_GUARDED_BY(mu) = 0;
  uint64_t inherited_index PAWL_GUARDED_BY(mu) = 0;
  // Of a primary: not before this, because the one before has been promised so (proto/replication.proto).
  MonotonicTime serves_from PAWL_GUARDED_BY(mu) = MonotonicTime::min();
  // Of a backup: since when the partition has no primary; nullopt: it has one.
  std::optional<MonotonicTime> without_primary_since PAWL_GUARDED_BY(mu);
  std::vector<Follower> followers PAWL_GUARDED_BY(mu);
  uint64_t durable_index PAWL_GUARDED_BY(mu) = 0;
  // Of a primary: to be taken; null if there is none.
  std::shared_ptr<const Cut> cut PAWL_GUARDED_BY(mu);

  // By the step that they wait for (Partition::CanPull).
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_step PAWL_GUARDED_BY(mu);
  // By the log index that must be committed.
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_commit PAWL_GUARDED_BY(mu);

  // What changes nothing in the partition and is no part of its state.
  uint64_t pushes_deduplicated PAWL_GUARDED_BY(mu) = 0;
  uint64_t staleness_max PAWL_GUARDED_BY(mu) = 0;
  uint64_t keys_pulled PAWL_GUARDED_BY(mu) = 0;

  // The last figures seen, for whoever must not wait for `mu` (a heartbeat, while a digest is computed).
  Mutex last_figures_mu;
  ReplicaFigures last_figures PAWL_GUARDED_BY(last_figures_mu);
  ReplicaFigures LastFigures() {
    MutexLock lock(last_figures_mu);
    return last_figures;
  }

  bool IsPrimary() const PAWL_REQUIRES(mu) { return role == ReplicaRole::kPrimary && partition != nullptr; }

  // The changes up to this one are durable here and on every follower that counts. REQUIRES: partition != nullptr.
  uint64_t CommitIndex() const PAWL_REQUIRES(mu) {
    uint64_t index = logs ? std::min(durable_index, partition->log_index()) : partition->log_index();
    for (const Follower& follower : followers) {
      if (follower.counts) index = std::min(index, follower.acked);
    }
    return index;
  }

  // The bytes of what a follower gets are `entry`'s; `bytes` is what they take.
  void SendToFollowers(const ReplicationLane::Entry& entry) PAWL_REQUIRES(mu) {
    for (Follower& follower : followers) {
      switch (follower.state) {
        case Follower::State::kNeedsSnapshot:
          break;
        case Follower::State::kAsked:
        case Follower::State::kInstalling:
          follower.behind_snapshot.push_back(entry);
          follower.bytes_behind_snapshot += entry.bytes.size();
          if (follower.bytes_behind_snapshot > kMaxLearnerBacklogBytes) StartAnew(follower);
          break;
        case Follower::State::kStreaming:
          follower.lane->Append(entry);
          if (!follower.counts && follower.lane->BytesOf(index) > kMaxLearnerBacklogBytes) StartAnew(follower);
          break;
      }
    }
  }

  // The follower gets a snapshot.
  void NeedsSnapshot(Follower& follower) PAWL_REQUIRES(mu) {
    follower.lane->Discard(index);
    follower.state = Follower::State::kNeedsSnapshot;
    follower.behind_snapshot.clear();
    follower.bytes_behind_snapshot = 0;
    follower.install = 0;
    follower.install_from.reset();
  }

  // The follower gets another snapshot, later.
  void StartAnew(Follower& follower) PAWL_REQUIRES(mu) {
    NeedsSnapshot(follower);
    ++follower.failed_installs;
  }

  Follower* FindFollower(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu) {
    for (Follower& follower : followers) {
      if (follower.node == node && follower.incarnation == incarnation) return &follower;
    }
    return nullptr;
  }

  ReplicaFigures Figures() PAWL_REQUIRES(mu) {
    // A backup's are its primary's.
    if (!IsPrimary()) return {};
    return {partition->counters(),  pushes_deduplicated,    staleness_max,
            keys_pulled,            partition->row_count(), partition->parameter_bytes(),
            partition->CutStep(),   /*is_primary=*/true};
  }

  // Moves those whose step can be pulled now, or whose change is committed, to `ready`.
  void TakeReady(std::vector<std::shared_ptr<WaitingCall>>& ready) PAWL_REQUIRES(mu) {
    if (partition == nullptr) return;
    auto step = waiting_for_step.begin();
    while (step != waiting_for_step.end() && partition->CanPull(step->first)) ready.push_back(std::move((step++)->second));
    waiting_for_step.erase(waiting_for_step.begin(), step);
    if (waiting_for_commit.empty()) return;
    const auto committed = waiting_for_commit.upper_bound(CommitIndex());
    for (auto it = waiting_for_commit.begin(); it != committed; ++it) ready.push_back(std::move(it->second));
    waiting_for_commit.erase(waiting_for_commit.begin(), committed);
  }

  // Moves all who wait to `all`: they wait in vain.
  void TakeAll(std::vector<std::shared_ptr<WaitingCall>>& all) PAWL_REQUIRES(mu) {
    for (auto& [step, call] : waiting_for_step) all.push_back(std::move(call));
    for (auto& [log_index, call] : waiting_for_commit) all.push_back(std::move(call));
    waiting_for_step.clear();
    waiting_for_commit.clear();
  }

  // Forgets those that were given up.
  void DropFinished() PAWL_REQUIRES(mu) {
    for (auto* waiting : {&waiting_for_step, &waiting_for_commit}) {
      for (auto it = waiting->begin(); it != waiting->end();) it = it->second->finished() ? waiting->erase(it) : std::next(it);
    }
  }
};

// To be called after every change that can raise Partition::CutStep, before anything else is changed.
inline void TakeCutIfDue(const std::shared_ptr<Replica>& replica) PAWL_REQUIRES(replica->mu) {
  if (replica->cut == nullptr || !replica->IsPrimary() || replica->partition->CutStep() < replica->cut->step) return;
  std::exchange(replica->cut, nullptr)->take(replica);
}

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICA_H_
