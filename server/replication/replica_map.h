// Which replicas this server hosts, in which roles, and the tables that they have.
#ifndef PAWL_SERVER_REPLICATION_REPLICA_MAP_H_
#define PAWL_SERVER_REPLICATION_REPLICA_MAP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/replication.pb.h"
#include "proto/scheduler.pb.h"
#include "server/replication/change_log.h"
#include "server/replication/replica.h"
#include "server/replication/replicator.h"
#include "server/replication/waiting_call.h"

namespace pawl {

// For how long a takeover is told of, and how many at most.
inline constexpr std::chrono::seconds kTakeoverTold{5};
inline constexpr size_t kMaxTakeoversTold = 1024;

// Thread-safe. Locks: that of adoption, then a replica's, then the view's: so whoever holds a
// replica may look at the view, and whoever wants to look waits for no replica, however long its
// lock is held.
//
// Invariants:
// 1. A replica becomes primary without data only as the first one since its partition began
// (PartitionReplicas.began),
//    or in the first routing that this process hears of: nothing was acknowledged without it.
// 2. A replica keeps its data as long as the routing names this server as a keeper, or the
// partition has no primary: it may
//    be the last one, to be named when this server registers again.
// 3. A learner keeps what it had until its primary completes it or a snapshot takes its place.
// 4. A primary acknowledges nothing while the routing wants a confirmation
// (PartitionReplicas.confirm_since) that the
//    scheduler has not given to this incarnation.
// 5. What a follower has taken by a routing that has not reached this server is not dropped for an
// older one.
class ReplicaMap {
 public:
  using Tables = absl::btree_map<uint32_t, std::shared_ptr<const TableSchema>>;

  // What a request sees, unchanged while it looks.
  struct View {
    uint64_t job_id = 0;
    // This server in this incarnation.
    std::string node;
    uint64_t incarnation = 0;
    PartitionOptions options;
    bool logs = false;
    // Job.min_in_sync.
    uint32_t min_in_sync = 1;
    uint64_t epoch = 0;
    // The incarnation in which that routing was adopted.
    uint64_t adopted_in = 0;
    RoutingTable routing;
    std::string routing_bytes;                       // serialized, for the payload
    std::vector<std::shared_ptr<Replica>> replicas;  // by partition; null: not hosted
    // All that some replica here has, or may soon.
    Tables tables;
    // The last PartitionReplicas.confirm_since of the partitions whose primary this server is.
    uint64_t confirm_since = 0;

    // The replica that is hosted here, in whatever role; null if none is.
    Replica* Find(uint32_t partition) const {
      return partition < replicas.size() ? replicas[partition].get() : nullptr;
    }
  };

  explicit ReplicaMap(const Clock& clock, const LearnerLimits& learner_limits = {})
      : clock_(clock),
        learner_limits_(learner_limits),
        began_(clock.LeaseNow()),
        view_(std::make_shared<View>()) {}

  // To be called before the first routing. Both may be null: nothing is replicated, or written
  // down.
  void SetReplicator(Replicator* replicator) { replicator_ = replicator; }
  void SetLog(ChangeLog* log) { log_ = log; }

  // `promise`: the longest that a former process may have promised just before it ended, in whose
  // place this one is.
  void Begin(uint64_t job_id, const PartitionOptions& options, uint32_t min_in_sync,
             std::string node, uint64_t incarnation, MonotonicDuration promise);
  // A replica as the log gave it back. REQUIRES: before the first routing, after Begin.
  void AddRecovered(std::unique_ptr<Partition> partition);

  // Takes the roles that `routing` gives to this server. False for an older epoch, one that is not
  // whole, names servers that there are not, or is not of this job and its partitions, and for a
  // routing that names another incarnation of this server: it says nothing of this one. `ready`
  // gets the calls that may go on, `stale` those that wait for what is elsewhere now; to be resumed
  // without locks. REQUIRES: Begin.
  bool AdoptRouting(const RoutingTable& routing, std::vector<std::shared_ptr<WaitingCall>>& ready,
                    std::vector<std::shared_ptr<WaitingCall>>& stale);

  // The epoch that the scheduler is to confirm; 0: none.
  uint64_t EpochToConfirm() const;
  // It has confirmed that this server, in this incarnation, acts by `epoch`. `ready`: as above.
  void OnConfirmed(uint64_t epoch, std::vector<std::shared_ptr<WaitingCall>>& ready);

  // The table, from now on among `tables`. ALREADY_EXISTS for another spec under its id,
  // RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
  absl::StatusOr<std::shared_ptr<const TableSchema>> LearnTable(const TableSpec& spec);

  // While a routing is being adopted, that before it.
  std::shared_ptr<const View> view() const {
    MutexLock lock(mu_);
    return view_;
  }
  ReplicationHeader Header() const;

  // The last partitions that were handed over to this server.
  std::vector<Takeover> Takeovers() const;

  // Promises the sender not to serve as primary of a partition of its own for `duration`. False: it
  // knows an older routing than this server, so it may be too late.
  bool Promise(const ReplicationHeader& sender, MonotonicDuration duration);

 private:
  using Server = std::pair<std::string, uint64_t>;

  // From now on no sender of a routing older than `epoch` gets a promise. Until when, by LeaseNow,
  // those given bind.
  MonotonicTime EndPromises(uint64_t epoch);

  const Clock& clock_;
  const LearnerLimits learner_limits_;
  // When this process began.
  const MonotonicTime began_;
  Replicator* replicator_ = nullptr;
  ChangeLog* log_ = nullptr;

  // One adoption at a time.
  Mutex adoption_mu_;
  // The last that was not of this job, or named servers that there are not, and was told of.
  uint64_t refused_epoch_ PAWL_GUARDED_BY(adoption_mu_) = 0;
  mutable Mutex mu_;
  std::shared_ptr<const View> view_ PAWL_GUARDED_BY(mu_);
  // The last routing epoch for which the scheduler has confirmed this incarnation.
  uint64_t confirmed_ PAWL_GUARDED_BY(mu_) = 0;
  MonotonicDuration former_promise_ PAWL_GUARDED_BY(mu_) = MonotonicDuration::zero();
  // Of the routing that is being adopted, or was last.
  uint64_t adopting_ PAWL_GUARDED_BY(mu_) = 0;
  absl::btree_map<Server, MonotonicTime> promises_ PAWL_GUARDED_BY(mu_);
  // With the times until which they are told.
  std::deque<std::pair<MonotonicTime, Takeover>> takeovers_ PAWL_GUARDED_BY(mu_);
};

// FAILED_PRECONDITION with the routing attached, of which the job and the epoch alone travel if it
// is large.
absl::Status StaleRouting(const ReplicaMap::View& view, absl::string_view what);
// UNAVAILABLE: the routing of that epoch is on its way.
absl::Status RoutingNotReached(const ReplicaMap::View& view, uint64_t epoch);
// NOT_FOUND.
absl::Status OfAnotherJob(uint64_t job_id);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_MAP_H_
