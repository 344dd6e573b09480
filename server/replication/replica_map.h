// The replica map: which replicas this server hosts, in which roles, and which tables they have.
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
#include "server/replication/durable_log.h"
#include "server/replication/replica.h"
#include "server/replication/replicator.h"
#include "server/replication/waiting_calls.h"

namespace pawl {

// How long a takeover is reported, and the limit on reported takeovers.
inline constexpr std::chrono::seconds kTakeoverReportTime{5};
inline constexpr size_t kMaxTakeoversReported = 1024;
// How long a former primary sends the changes that it has, before its successor takes over.
inline constexpr std::chrono::milliseconds kMaxHandoverTime{500};

// Thread-safe. Lock order: adoption, a replica's, the view's. So a thread that holds a replica may
// read the view, and a reader of the view waits for no replica, however long its lock is held.
//
// Invariants:
// 1. A replica becomes primary without data only as the first primary since its partition was
//    created (PartitionReplicas.created_epoch), or in the first routing that this process adopts:
//    nothing was acknowledged without it. For the same reason a server that no routing since the
//    creation has reached holds an empty replica once a routing names it as retained.
// 2. A replica keeps its data as long as the routing names this server as a retained replica
//    (PartitionReplicas.retained) or the partition has no primary: it may be the last replica, and
//    this server reports it when it registers again.
// 3. A learner keeps the data that it had until its primary completes it or a snapshot replaces it.
// 4. A primary acknowledges nothing while the routing requires a confirmation
//    (PartitionReplicas.confirm_since) that the scheduler has not given to this incarnation.
// 5. A follower does not drop, for an older routing, the changes that it has accepted under a
//    routing that has not reached this server.
class ReplicaMap {
 public:
  using Tables = absl::btree_map<uint32_t, std::shared_ptr<const TableSchema>>;

  // A consistent state for one request.
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
    // All tables that some replica here has, or may have soon.
    Tables tables;
    // The latest PartitionReplicas.confirm_since of the partitions whose primary this server is.
    uint64_t confirm_since = 0;

    // The replica hosted here, in any role; null if there is none.
    Replica* Find(uint32_t partition) const {
      return partition < replicas.size() ? replicas[partition].get() : nullptr;
    }
    // Whether the partition has got another primary since that epoch.
    bool IsStale(uint32_t partition, uint64_t since_epoch) const {
      const auto i = static_cast<int>(partition);
      return i < routing.replicas_size() && routing.replicas(i).primary_since() > since_epoch;
    }
  };

  explicit ReplicaMap(const Clock& clock, const LearnerLimits& learner_limits = {})
      : clock_(clock),
        learner_limits_(learner_limits),
        started_(clock.LeaseNow()),
        view_(std::make_shared<View>()) {}

  // Call both before the first routing. Null: nothing is replicated, or nothing is logged.
  void SetReplicator(Replicator* replicator) { replicator_ = replicator; }
  void SetLog(DurableLog* log) { log_ = log; }

  // `promise`: the longest promise that the previous process of this node may have given just
  // before it ended.
  void Begin(uint64_t job_id, const PartitionOptions& options, uint32_t min_in_sync,
             std::string node, uint64_t incarnation, MonotonicDuration promise);
  // Adds a replica recovered from the log. REQUIRES: after Begin, before the first routing.
  void AddRecovered(std::unique_ptr<Partition> partition);

  // Adopts the roles that `routing` gives to this server. Returns false, and changes nothing, for a
  // routing that is older, incomplete, of another job or number of partitions, that refers to
  // unlisted servers, or that names another incarnation of this server. `ready` receives the calls
  // that can resume, `stale` those whose partition is elsewhere now; resume both without locks.
  // REQUIRES: Begin.
  bool AdoptRouting(const RoutingTable& routing, std::vector<std::shared_ptr<WaitingCall>>& ready,
                    std::vector<std::shared_ptr<WaitingCall>>& stale);

  // The epoch that the scheduler is to confirm; 0: none, or not while a handover runs.
  uint64_t EpochToConfirm() const;
  // The scheduler has confirmed that this incarnation acts by `epoch`. `ready`: as above.
  void OnConfirmed(uint64_t epoch, std::vector<std::shared_ptr<WaitingCall>>& ready);

  // Some replicas that were primary still send what they have to their followers. Until that ends,
  // this server does not act by its routing.
  bool IsYielding() const;
  // Ends the handovers whose followers have everything, or that last too long. True if the last one
  // has ended now. Call it without locks.
  bool EndHandovers();

  // Adds the table to `tables`. ALREADY_EXISTS if its id has another spec, RESOURCE_EXHAUSTED,
  // INVALID_ARGUMENT.
  absl::StatusOr<std::shared_ptr<const TableSchema>> LearnTable(const TableSpec& spec);

  // While a routing is being adopted, the view of the previous one.
  std::shared_ptr<const View> view() const {
    MutexLock lock(mu_);
    return view_;
  }
  ReplicationHeader Header() const;

  // The partitions recently taken over by this server.
  std::vector<Takeover> Takeovers() const;

  // Promises the sender not to serve as primary of one of its partitions for `duration`. False: its
  // routing is older than this server's, so the promise may come too late.
  bool Promise(const ReplicationHeader& sender, MonotonicDuration duration);

 private:
  using Server = std::pair<std::string, uint64_t>;

  struct Adoption;
  // False, with a line in the log where it is an error, if the routing must not be adopted.
  bool IsAdoptable(const RoutingTable& routing, const View& before) PAWL_REQUIRES(adoption_mu_);
  // Gives the partition's replica its role.
  void AdoptPartition(uint32_t partition, Adoption& adoption) PAWL_REQUIRES(adoption_mu_);
  // `is_first`: the primary is the first one since the partition was created.
  void AdoptAsPrimary(Replica& replica, const PartitionReplicas& wanted, bool is_first,
                      Adoption& adoption) PAWL_REQUIRES(adoption_mu_, replica.mu);
  // The replica, until now primary, must yield.
  void BeginHandover(const std::shared_ptr<Replica>& replica, const PartitionReplicas& wanted,
                     const RoutingTable& routing) PAWL_REQUIRES(adoption_mu_, replica->mu);
  void ReportTakeover(Replica& replica, MonotonicTime without_primary_since)
      PAWL_REQUIRES(replica.mu);
  // From now on no sender of a routing older than `epoch` gets a promise. Returns until when, by
  // LeaseNow, the given promises bind.
  MonotonicTime EndPromises(uint64_t epoch);

  const Clock& clock_;
  const LearnerLimits learner_limits_;
  // When this process started.
  const MonotonicTime started_;
  Replicator* replicator_ = nullptr;
  DurableLog* log_ = nullptr;

  // One adoption at a time.
  Mutex adoption_mu_;
  // The last epoch whose refusal was logged.
  uint64_t refused_epoch_ PAWL_GUARDED_BY(adoption_mu_) = 0;
  mutable Mutex mu_;
  std::shared_ptr<const View> view_ PAWL_GUARDED_BY(mu_);
  // The last routing epoch that the scheduler has confirmed for this incarnation.
  uint64_t confirmed_ PAWL_GUARDED_BY(mu_) = 0;
  MonotonicDuration former_promise_ PAWL_GUARDED_BY(mu_) = MonotonicDuration::zero();
  // The epoch of the routing that is being adopted, or was adopted last.
  uint64_t adopting_ PAWL_GUARDED_BY(mu_) = 0;
  absl::btree_map<Server, MonotonicTime> promises_ PAWL_GUARDED_BY(mu_);
  // Former primaries that still send what they have, and the last epoch by which one of them
  // yielded.
  std::vector<std::shared_ptr<Replica>> yielding_ PAWL_GUARDED_BY(mu_);
  uint64_t yielded_ PAWL_GUARDED_BY(mu_) = 0;
  // With the times until which they are reported.
  std::deque<std::pair<MonotonicTime, Takeover>> takeovers_ PAWL_GUARDED_BY(mu_);
};

// FAILED_PRECONDITION with the routing attached; a large routing is reduced to its job and epoch.
absl::Status StaleRouting(const ReplicaMap::View& view, absl::string_view what);
// UNAVAILABLE: the routing of that epoch has not arrived yet.
absl::Status RoutingNotArrived(const ReplicaMap::View& view, uint64_t epoch);
// NOT_FOUND: the request is for another job.
absl::Status WrongJob(uint64_t job_id);

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_REPLICA_MAP_H_
