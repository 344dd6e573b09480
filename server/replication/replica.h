// A replica of a partition that this server hosts: its state and lock, its followers, and the calls
// that wait for it.
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
#include "client_lib/daemon/pull_marks.h"
#include "client_lib/daemon/staleness_counts.h"
#include "server/replication/backpressure.h"
#include "server/replication/follower.h"
#include "server/replication/replication_stream.h"
#include "server/replication/waiting_calls.h"
#include "server/shard/partition.h"

namespace pawl {

// What a heartbeat reports about a replica.
struct ReplicaFigures {
  PartitionCounters counters;
  uint64_t pushes_deduplicated = 0;
  uint64_t staleness_max = 0;
  uint64_t keys_pulled = 0;
  uint64_t rows = 0;
  uint64_t parameter_bytes = 0;
  uint64_t step = 0;
  bool is_primary = false;
  // Retained, not in sync (PartitionReplicas.retained).
  bool is_retained = false;
  // The last change.
  uint64_t log_index = 0;
  uint64_t retained_bytes = 0;
  uint64_t pulls_beyond_bound = 0;
  StalenessCounts clock_staleness;
  StalenessCounts update_staleness;
};

enum class ReplicaRole {
  kPrimary,
  kBackup,
  kLearner,
  // Serves nothing and retains its data: no other server is yet known to have it.
  kRetained,
  // No longer hosted here; threads that still refer to the object see this role.
  kDropped,
};

struct Replica;

// A primary's share of a pending consistent cut.
struct Cut {
  // The cut is taken at the moment when the partition reaches this step.
  uint64_t step = 0;
  // Called then, under the replica's lock.
  std::function<void(const std::shared_ptr<Replica>&)> take;
};

// A thread that holds `mu` may acquire the locks of the stream and the log.
//
// Invariants:
// 1. Only a primary assigns log indices, and each follower is sent every entry after its snapshot,
//    in order.
// 2. A change is committed when this server's log and every synchronous follower have it. It is
//    acknowledged only then, and so is a duplicate of it.
struct Replica {
  // `logs`: changes are durable when the log reports them; otherwise at once.
  Replica(uint32_t index, bool logs, uint32_t min_in_sync = 1, const LearnerLimits& limits = {})
      : index(index), logs(logs), min_in_sync(min_in_sync), limits(limits) {}

  const uint32_t index;
  const bool logs;
  // A primary acknowledges a change only if this many replicas have it, itself included.
  const uint32_t min_in_sync;
  const LearnerLimits limits;

  Mutex mu;
  ReplicaRole role PAWL_GUARDED_BY(mu) = ReplicaRole::kLearner;
  // Null: a learner without data that has not received its snapshot yet.
  std::unique_ptr<Partition> partition PAWL_GUARDED_BY(mu);
  // The term: the routing epoch at which the present primary, which may be this replica, became
  // primary.
  uint64_t primary_since PAWL_GUARDED_BY(mu) = 0;
  // For a follower: the newest routing epoch of a request from its primary that was not refused.
  uint64_t addressed_epoch PAWL_GUARDED_BY(mu) = 0;
  // Another state will replace `partition`, which accepts no changes until then.
  bool installing PAWL_GUARDED_BY(mu) = false;
  // For a primary: it serves only from this time on, by LeaseNow, because the previous primary was
  // given a promise until then (proto/replication.proto).
  MonotonicTime serves_from PAWL_GUARDED_BY(mu) = MonotonicTime::min();
  // For a backup: since when the partition has had no primary; nullopt: it has one.
  std::optional<MonotonicTime> without_primary_since PAWL_GUARDED_BY(mu);
  // For a primary: PartitionReplicas.confirm_since until the scheduler has confirmed it; then 0.
  uint64_t unconfirmed_since PAWL_GUARDED_BY(mu) = 0;
  std::vector<Follower> followers PAWL_GUARDED_BY(mu);
  // For a retained replica: until then it still sends the followers what it has as the former
  // primary (ReplicaMap::EndHandovers).
  std::optional<MonotonicTime> yields_until PAWL_GUARDED_BY(mu);
  uint64_t durable_index PAWL_GUARDED_BY(mu) = 0;
  // Whether a learner may lack so much that ThrottlePush slows pushes. Set under `mu`.
  std::atomic<bool> brakes{false};
  PushBrake brake PAWL_GUARDED_BY(mu);
  // When ThrottlePush last delayed or refused a push.
  MonotonicTime pushes_waited_at PAWL_GUARDED_BY(mu) = MonotonicTime::min();
  // For a primary: the pending cut; null if there is none.
  std::shared_ptr<const Cut> cut PAWL_GUARDED_BY(mu);

  // By the step they wait for (Partition::CanPull).
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_step PAWL_GUARDED_BY(mu);
  // Calls that wait until all ranks have ended a step (Partition::HaveAllEnded), by the step.
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_ends PAWL_GUARDED_BY(mu);
  // Pulls that wait for the end of their rank's previous step (Partition::HasOwnSteps), by rank and
  // step; at most a few for each rank.
  absl::btree_multimap<std::pair<uint32_t, uint64_t>, std::shared_ptr<WaitingCall>>
      waiting_for_own_step PAWL_GUARDED_BY(mu);
  // By the log index that must be committed, or, in a follower, durable.
  absl::btree_multimap<uint64_t, std::shared_ptr<WaitingCall>> waiting_for_commit
      PAWL_GUARDED_BY(mu);

  // Counters that are not part of the partition's state.
  uint64_t pushes_deduplicated PAWL_GUARDED_BY(mu) = 0;
  uint64_t staleness_max PAWL_GUARDED_BY(mu) = 0;
  // BOUNDED and ASYNC; see ServerCounters.
  StalenessCounts clock_staleness PAWL_GUARDED_BY(mu);
  StalenessCounts update_staleness PAWL_GUARDED_BY(mu);
  PullMarks pull_marks PAWL_GUARDED_BY(mu);
  uint64_t keys_pulled PAWL_GUARDED_BY(mu) = 0;
  // Partition::ExceedsBound.
  uint64_t pulls_beyond_bound PAWL_GUARDED_BY(mu) = 0;

  // The latest figures, for callers that must not wait for `mu` (a heartbeat while a digest is
  // computed).
  Mutex last_figures_mu;
  ReplicaFigures last_figures PAWL_GUARDED_BY(last_figures_mu);
  ReplicaFigures LastFigures() {
    MutexLock lock(last_figures_mu);
    return last_figures;
  }

  // A primary may have no data yet.
  bool HasDataAsPrimary() const PAWL_REQUIRES(mu) {
    return role == ReplicaRole::kPrimary && partition != nullptr;
  }

  // It sends its changes to followers: as the primary, or as the former one that hands over.
  bool HasFollowersToServe() const PAWL_REQUIRES(mu) {
    return HasDataAsPrimary() || yields_until.has_value();
  }

  // The last change that is durable here and on every synchronous follower; 0 while too few of
  // these exist or the scheduler has not confirmed that no other server is one. It falls when a
  // learner becomes synchronous; that is reported only once the learner has what was acknowledged
  // before. REQUIRES: partition != nullptr.
  uint64_t CommitIndex() const PAWL_REQUIRES(mu);

  // Grows with the partition: a larger snapshot travels longer, and more is pushed meanwhile.
  size_t MaxLearnerBacklog() const PAWL_REQUIRES(mu);
  // The bytes of entries kept for the follower that it does not have yet.
  size_t BacklogOf(const Follower& follower) const PAWL_REQUIRES(mu);
  // The follower makes progress: pushes are slowed instead of sending it another snapshot.
  bool IsBraked(const Follower& follower) const PAWL_REQUIRES(mu);
  // Updates and returns follower.slows_pushes: its backlog has exceeded kUnbrakedShare of the
  // bound, and is not nearly empty yet. If it ended below that share, pushes that are faster than
  // the stream would keep the backlog there for ever.
  bool UpdateSlowsPushes(Follower& follower) const PAWL_REQUIRES(mu);
  // How long a push of that many bytes must wait for learners before it is applied; zero: not at
  // all. Nullopt: the sender must retry later.
  std::optional<MonotonicDuration> ThrottlePush(size_t bytes, MonotonicTime now) PAWL_REQUIRES(mu);

  // A synchronous follower is sent entries that share the memory of `entry`; others are sent a
  // copy.
  void SendToFollowers(const ReplicationStream::Entry& entry) PAWL_REQUIRES(mu);

  // Whether a follower will be sent entries from the log, as far back as it reaches now. They are
  // bounded by what the follower lacked when it was asked, which is less than a snapshot, and by
  // MaxLearnerBacklog.
  bool IsFollowerReadingLog() const PAWL_REQUIRES(mu);

  // With a log: drops held entries beyond kMaxHeldBytes; they are read from the log in their turn.
  void TrimHeld(Follower& follower) PAWL_REQUIRES(mu);

  // Makes the follower wait for a snapshot.
  void RequireSnapshot(Follower& follower) PAWL_REQUIRES(mu);

  // Sends the followers nothing more.
  void DropFollowers() PAWL_REQUIRES(mu);

  // Counts a failure and makes the follower wait for another snapshot.
  void RestartSnapshot(Follower& follower) PAWL_REQUIRES(mu);

  // Null if there is none.
  Follower* FindFollower(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu);

  ReplicaFigures Figures() PAWL_REQUIRES(mu);

  // Moves the calls whose step can be pulled now or has been ended by all, or whose change is
  // committed, to `ready`.
  void TakeReady(std::vector<std::shared_ptr<WaitingCall>>& ready) PAWL_REQUIRES(mu);

  // Moves all waiting calls to `all`: their condition will not be met here.
  void TakeAll(std::vector<std::shared_ptr<WaitingCall>>& all) PAWL_REQUIRES(mu);

  // Removes the calls that were abandoned.
  void DropFinished() PAWL_REQUIRES(mu);
};

// Call this after every change that can raise Partition::CutStep, before anything else changes.
void TakeCutIfDue(const std::shared_ptr<Replica>& replica) PAWL_REQUIRES(replica->mu);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_H_
