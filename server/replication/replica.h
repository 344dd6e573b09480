// A replica of a partition that this server hosts, with its lock, what follows it, and those who
// wait for it.
#ifndef PAWL_SERVER_REPLICATION_REPLICA_H_
#define PAWL_SERVER_REPLICATION_REPLICA_H_

#include <atomic>
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
#include "server/replication/follower.h"
#include "server/replication/push_brake.h"
#include "server/replication/replication_stream.h"
#include "server/replication/waiting_call.h"
#include "server/shard/partition.h"

namespace pawl {

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
  // Kept for others, not in sync (PartitionReplicas.keepers).
  bool is_kept = false;
  // Changes wait for the log, and how many it has taken.
  bool waits_for_log = false;
  uint64_t durable_index = 0;
  uint64_t kept_bytes = 0;
  uint64_t pulls_beyond_bound = 0;
};

enum class ReplicaRole {
  kPrimary,
  kBackup,
  kLearner,
  // Serves nothing and keeps what it has: there is no other server yet that is known to have it.
  kHeld,
  // Not hosted here any more: whoever still has the object finds this.
  kDropped,
};

struct Replica;

// A primary's share of a consistent cut, before it is taken.
struct Cut {
  // The partition is cut at the moment when it reaches this step.
  uint64_t step = 0;
  // Called then, under the replica's lock.
  std::function<void(const std::shared_ptr<Replica>&)> take;
};

// The members of a replica. Whoever holds `mu` may take the stream's and the log's locks.
//
// Invariants:
// 1. Only a primary gives log indices, and each follower is handed every entry after its snapshot
// in order.
// 2. A change is committed when the own log and every follower that counts have it; it is
//    acknowledged only then, and so is a duplicate of it.
struct Replica {
  // Logs: changes are durable when `OnDurable` says so; otherwise at once.
  Replica(uint32_t index, bool logs, uint32_t min_in_sync = 1, const LearnerLimits& limits = {})
      : index(index), logs(logs), min_in_sync(min_in_sync), limits(limits) {}

  const uint32_t index;
  const bool logs;
  // A primary acknowledges nothing that fewer replicas have, itself among them.
  const uint32_t min_in_sync;
  const LearnerLimits limits;

  Mutex mu;
  ReplicaRole role PAWL_GUARDED_BY(mu) = ReplicaRole::kLearner;
  // Null: a learner that had nothing, before its snapshot.
  std::unique_ptr<Partition> partition PAWL_GUARDED_BY(mu);
  // The routing epoch at which the present primary, which may be this one, became it.
  uint64_t primary_since PAWL_GUARDED_BY(mu) = 0;
  // Of a follower: the newest routing epoch by which its primary has asked it something, or sent it
  // something that was not refused.
  uint64_t addressed_epoch PAWL_GUARDED_BY(mu) = 0;
  // Another state is about to take the place of `partition`, which takes no changes meanwhile.
  bool installing PAWL_GUARDED_BY(mu) = false;
  // Of a primary: not before this, by LeaseNow, because the one before has been promised so
  // (proto/replication.proto).
  MonotonicTime serves_from PAWL_GUARDED_BY(mu) = MonotonicTime::min();
  // Of a backup: since when the partition has no primary; nullopt: it has one.
  std::optional<MonotonicTime> without_primary_since PAWL_GUARDED_BY(mu);
  // Of a primary: PartitionReplicas.confirm_since, until the scheduler has confirmed that. 0:
  // confirmed.
  uint64_t unconfirmed_since PAWL_GUARDED_BY(mu) = 0;
  std::vector<Follower> followers PAWL_GUARDED_BY(mu);
  uint64_t durable_index PAWL_GUARDED_BY(mu) = 0;
  // Some learner may lack so much that BrakePush slows pushes. Set under `mu`.
  std::atomic<bool> brakes{false};
  PushBrake brake PAWL_GUARDED_BY(mu);
  // When BrakePush last delayed or refused a push.
  MonotonicTime pushes_waited_at PAWL_GUARDED_BY(mu) = MonotonicTime::min();
  // Of a primary: to be taken; null if there is none.
  std::shared_ptr<const Cut> cut PAWL_GUARDED_BY(mu);

  // By the step that they wait for (Partition::CanPull).
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_step PAWL_GUARDED_BY(mu);
  // By the log index that must be committed.
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_commit
      PAWL_GUARDED_BY(mu);

  // What changes nothing in the partition and is no part of its state.
  uint64_t pushes_deduplicated PAWL_GUARDED_BY(mu) = 0;
  uint64_t staleness_max PAWL_GUARDED_BY(mu) = 0;
  uint64_t keys_pulled PAWL_GUARDED_BY(mu) = 0;
  // Partition::ExceedsBound.
  uint64_t pulls_beyond_bound PAWL_GUARDED_BY(mu) = 0;

  // The last figures seen, for whoever must not wait for `mu` (a heartbeat, while a digest is
  // computed).
  Mutex last_figures_mu;
  ReplicaFigures last_figures PAWL_GUARDED_BY(last_figures_mu);
  ReplicaFigures LastFigures() {
    MutexLock lock(last_figures_mu);
    return last_figures;
  }

  // Not the role alone: a primary may have nothing yet.
  bool HasDataAsPrimary() const PAWL_REQUIRES(mu) {
    return role == ReplicaRole::kPrimary && partition != nullptr;
  }

  // The changes up to this one are durable here and on every follower that counts; none, while
  // there are too few of those or the scheduler has not confirmed that no other server counts.
  // Falls when a learner begins to count, which is told of only when it has what was acknowledged
  // before. REQUIRES: partition != nullptr.
  uint64_t CommitIndex() const PAWL_REQUIRES(mu);

  // By the partition's size: the longer its snapshot travels, the more is pushed meanwhile.
  size_t MaxLearnerBacklog() const PAWL_REQUIRES(mu);
  // Bytes of entries that the follower does not have yet, of those that are kept for it.
  size_t BacklogOf(const Follower& follower) const PAWL_REQUIRES(mu);
  // Pushes are slowed rather than that the follower gets another snapshot: it moves.
  bool IsBraked(const Follower& follower) const PAWL_REQUIRES(mu);
  // How long a push of so many bytes has to wait for the sake of learners before it is applied;
  // zero: not at all. Nothing: it is to come again later.
  std::optional<MonotonicDuration> BrakePush(size_t bytes, MonotonicTime now) PAWL_REQUIRES(mu);

  // What a follower that counts gets has the memory of `entry`; what others get is a copy.
  void SendToFollowers(const ReplicationStream::Entry& entry) PAWL_REQUIRES(mu);

  // A follower is about to get entries from the log, as far back as it is kept now. That is
  // bounded: by what the follower lacked when it was asked, which is less than a snapshot, and
  // MaxLearnerBacklog.
  bool FollowerNeedsLog() const PAWL_REQUIRES(mu);

  // With a log: what is held beyond kMaxHeldBytes is read from there when its turn comes.
  void ForgetHeld(Follower& follower) PAWL_REQUIRES(mu);

  // The follower gets a snapshot.
  void NeedsSnapshot(Follower& follower) PAWL_REQUIRES(mu);

  // The follower gets another snapshot, later.
  void StartAnew(Follower& follower) PAWL_REQUIRES(mu);

  // Null if there is none.
  Follower* FindFollower(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu);

  ReplicaFigures Figures() PAWL_REQUIRES(mu);

  // Moves those whose step can be pulled now, or whose change is committed, to `ready`.
  void TakeReady(std::vector<std::shared_ptr<WaitingCall>>& ready) PAWL_REQUIRES(mu);

  // Moves all who wait to `all`: they wait in vain.
  void TakeAll(std::vector<std::shared_ptr<WaitingCall>>& all) PAWL_REQUIRES(mu);

  // Forgets those that were given up.
  void DropFinished() PAWL_REQUIRES(mu);
};

// To be called after every change that can raise Partition::CutStep, before anything else is
// changed.
void TakeCutIfDue(const std::shared_ptr<Replica>& replica) PAWL_REQUIRES(replica->mu);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_H_
