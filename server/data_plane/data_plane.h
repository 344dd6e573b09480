// Serves a server's requests: Push, Pull, Scan, EndStep, TakeOver, and the scheduler's control
// calls.
#ifndef PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_
#define PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/request_handler.h"
#include "proto/parameter.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/server_control.pb.h"
#include "server/data_plane/byte_reservation.h"
#include "server/disk_watch.h"
#include "server/replication/durable_log.h"
#include "server/replication/log_entry.h"
#include "server/replication/replica_map.h"
#include "server/replication/replica_receiver.h"
#include "server/replication/replicator.h"
#include "server/replication/waiting_calls.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/shard/table_part.h"
#include "server/storage/block_file.h"
#include "server/threads/helper_threads.h"

namespace pawl {

// The snapshot of one partition at a cut, and the last change it contains.
struct TakenCut {
  ChangeMark mark;
  HeldSnapshot snapshot;
};

// The limit on bytes that wait for a step. gRPC may use twice `max_bytes_in_flight` for all
// requests of a port: those that wait must leave room for the others.
inline size_t MaxBytesWaitingForStep(size_t max_bytes_in_flight) {
  return std::min(size_t{1} << 30, max_bytes_in_flight / 2);
}

struct DataPlaneOptions {
  // Limit on the bytes of pushes that are being served or wait for their commit, of answers to
  // pulls, and of pushes that the log or a backup has not taken yet. Beyond it a request is refused
  // with RESOURCE_EXHAUSTED and a time to retry.
  size_t max_bytes_in_flight = size_t{2} << 30;
  // Limit on calls that wait for a step or for replicas. More than all workers of a large job need.
  size_t max_waiting_calls = 65536;
  // Limit on the bytes of pulls and pushes that wait for a step, with their segments, which take
  // more memory than the messages if they have few keys. Beyond it those that would have to wait
  // are refused in the same way. They are not counted as in flight: a request must not keep out the
  // push that it waits for.
  size_t max_bytes_waiting_for_step = MaxBytesWaitingForStep(size_t{2} << 30);
  // Limit on the bytes of snapshots that have arrived in part.
  size_t max_partial_snapshot_bytes = kMaxPartialSnapshotBytes;
  // See EntryTail.
  size_t max_tail_bytes = kMaxTailBytes;
  // See PartitionOptions.
  uint64_t max_rows_per_partition = uint64_t{1} << 26;
  // The processor time of this process, for reports. Null: unknown.
  std::function<double()> cpu_seconds;
  // How long a control call may wait before the scheduler calls again.
  std::chrono::seconds control_deadline{20};
  // Threads that help with work on many partitions (closing a SYNC step, digests, the best
  // parameters); null: none. The owner stops them before it destroys the data plane.
  HelperThreads* helpers = nullptr;
  ReplicatorOptions replication;
};

// A server's membership in its job. Thread-safe.
class JobMembership {
 public:
  // The end of this server's lease, by LeaseNow.
  virtual MonotonicTime LeaseUntil() const = 0;
  // Whether the scheduler has reported the job as started and this server acts by a routing of its
  // present incarnation.
  virtual bool HasStarted() const = 0;
  // Former primaries on this server have sent their followers what they had: it acts by its routing
  // now (ReplicaMap::IsYielding). Called without locks.
  virtual void OnHandedOver() = 0;

 protected:
  ~JobMembership() = default;
};

// The replicas of one server and the requests on them. It owns no thread and knows no gRPC: calls
// run on the threads that bring them and on helper threads. A waiting call is answered on the
// thread that brings what it waited for. The owner calls Tick regularly. Thread-safe.
//
// Lock order: the adoption lock (ReplicaMap); then one replica's lock at a time; then the locks of
// the view (ReplicaMap), the replicator, a replication stream or the log.
class DataPlane final : public RequestHandler, public DurableLog::Owner, public Replicator::Owner {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // `peers` reaches other servers; null: nothing can be replicated. `membership`, null: the lease
  // never ends, and the job has always started. All of them outlive this object, and none of their
  // callbacks runs after its destruction.
  DataPlane(const DataPlaneOptions& options, const Clock& clock, Transport* peers = nullptr,
            JobMembership* membership = nullptr);
  ~DataPlane() override;

  // Sets the log that changes go to; without one durability is MEMORY. REQUIRES: called before
  // Begin; `log` outlives this object.
  void SetLog(DurableLog& log);

  // Sets the job, with its defaults resolved as in the registration, and this server's identity.
  // Until Begin and the first routing table every call gets UNAVAILABLE. A later call begins
  // another incarnation.
  void Begin(const RegisterResponse& registration);
  // See ReplicaMap::AddRecovered.
  void AddRecovered(std::unique_ptr<Partition> partition) {
    replica_map_.AddRecovered(std::move(partition));
  }
  uint64_t job_id() const { return replica_map_.view()->job_id; }

  // Takes the roles that `routing` gives this server. Ignores older epochs. REQUIRES: Begin.
  void AdoptRouting(const RoutingTable& routing) override;
  // Whether the roles come from a routing that this incarnation has adopted.
  bool IsRouted() const;
  uint64_t epoch() const { return replica_map_.view()->epoch; }
  // Counters of pushes slowed down for learners (backpressure.h).
  uint64_t pushes_delayed() const { return pushes_delayed_; }
  uint64_t pushes_refused() const { return pushes_refused_; }
  // See ReplicaMap.
  uint64_t EpochToConfirm() const { return replica_map_.EpochToConfirm(); }
  // ReplicaMap::IsYielding.
  bool IsYielding() const { return replica_map_.IsYielding(); }
  void OnConfirmed(uint64_t epoch);
  // DurableLog::Owner. REQUIRES: SetLog.
  bool OnDurable(uint32_t partition) override;
  std::optional<HeldSnapshot> Hold(uint32_t partition) override;
  // Adds to a heartbeat how the replicas stood at the last Tick. Never waits for a busy replica.
  void FillHeartbeat(HeartbeatRequest& request) const;
  // The replicas that have data, for the next registration. They include learners: one may have
  // been made a backup without having heard of it, and the scheduler knows which replicas are in
  // sync.
  std::vector<RecoveredReplica> ReplicasWithData() const;
  // What this server knows of the job, without HeldJob.job. Empty before the first routing.
  std::optional<HeldJob> Held() const;
  // The partitions whose pulls this server would answer now, ascending. At any time at most one
  // server serves a partition.
  std::vector<uint32_t> Served() const;
  // Whether this server can leave: by the newest routing it has no replica that only it holds.
  bool IsDrained() const;
  // Whether the newest routing has other servers.
  bool HasPeers() const { return replica_map_.view()->routing.servers_size() > 1; }

  // RequestHandler.
  void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) override;

  // ServerControl; see proto/server_control.proto. `epoch` is the caller's. `done` may run before
  // the call returns.
  void CreateTable(uint64_t epoch, const TableSpec& spec, Done done);
  void KeepBest(uint64_t epoch, uint64_t step, Done done);
  void RestoreBest(uint64_t epoch, Done done);
  void ReleaseLogicalWorker(uint64_t epoch, uint32_t rank, uint64_t incarnation, Done done);
  absl::StatusOr<InspectResponse> Inspect(uint64_t epoch, bool digest);
  absl::StatusOr<FingerprintResponse> Fingerprint(uint64_t epoch);

  // Checkpoints (data_plane_checkpoint.cc); `epoch` as above.
  //
  // Sets `cut`, in place of any other, in every partition whose primary this server is, except
  // those that are cut already (`has`, called under the replica's lock). Returns the partitions
  // whose primary is this server. OUT_OF_RANGE: a partition has already reached the step; the cut
  // is then set nowhere.
  absl::StatusOr<std::vector<uint32_t>> SetCut(uint64_t epoch,
                                               const std::shared_ptr<const Cut>& cut,
                                               absl::FunctionRef<bool(uint32_t partition)> has);
  // Removes the cut from every partition where it has not been taken.
  void DropCut(const std::shared_ptr<const Cut>& cut);
  // The partitions of SetCut after training has ended. FAILED_PRECONDITION: one is not at `step`.
  absl::StatusOr<std::vector<uint32_t>> PrimariesAt(uint64_t epoch, uint64_t step) const;
  // Takes the cut of one of them now. ABORTED: it has moved. FAILED_PRECONDITION: it is not at
  // `step`.
  absl::StatusOr<TakenCut> TakeCutNow(uint32_t partition, uint64_t step) const;
  // Runs `done` when the changes are committed; ABORTED: a partition has moved before that.
  void AwaitCommit(const std::vector<ChangeMark>& changes, Done done);
  // The partitions whose primary this server is, with their log indexes.
  absl::StatusOr<std::vector<RecoveredReplica>> Primaries(uint64_t epoch) const;
  // Reads a partition from a checkpoint and makes it one of this job. CANCELLED: `should_continue`,
  // called before each block, has returned false.
  absl::StatusOr<std::unique_ptr<Partition>> LoadSaved(
      BlockFileReader& file, uint32_t partition, absl::FunctionRef<bool()> should_continue) const;
  // Replaces an unchanged partition and writes it to the log. FAILED_PRECONDITION: the partition
  // has been changed.
  absl::Status Install(std::unique_ptr<Partition> partition);
  // Waits until the log, if any, is durable up to that change; see DurableLog::AwaitDurable.
  absl::Status AwaitDurable(uint32_t partition, uint64_t log_index) const;

  // With `may_be_old`, the figures of a busy partition are those of the last call, so the call does
  // not wait for it.
  ServerCounters Counters(bool may_be_old);

  // Answers waiting calls whose deadline has passed or whose caller has gone, and drives
  // replication.
  void Tick();
  // Answers all waiting and future calls with `status` and stops sending to other servers, because
  // the job or this server is ending.
  void Close(absl::Status status);
  // REQUIRES: there are peers.
  const CatchUpFigures& catch_up_figures() const { return replicator_->figures(); }
  // Copies to other servers without a rate limit from now on.
  void LiftRepairLimit();

 private:
  using View = ReplicaMap::View;

  // A partition in which a step ends, and the number of segments the step has there.
  struct StepEnd {
    std::shared_ptr<Replica> replica;
    std::optional<uint64_t> segments;
  };

  // The sizes of a segment's answer.
  struct PullBytes {
    size_t values = 0;
    size_t slots = 0;
  };

  // What a change leaves to do after the locks are released.
  struct Changes {
    // Must be committed before the call is answered.
    std::vector<ChangeMark> marks;
    // Ready to be resumed.
    std::vector<std::shared_ptr<WaitingCall>> ready;
  };

  // Owns the keys and values of a change. The log and the replication streams also hold the
  // reservation, because the call may end before they are done. The tail does not hold it; it
  // counts the `bytes` of `owner` itself.
  struct ChangeMemory {
    std::shared_ptr<const void> owner;
    size_t bytes = 0;
    std::shared_ptr<const ByteReservation> reservation;
  };

  absl::StatusOr<std::shared_ptr<const View>> Admit(const RequestHeader& header,
                                                    Sender& sender) const;
  // The replica, if this server has one in `view`.
  absl::StatusOr<std::shared_ptr<Replica>> Find(const View& view, uint32_t partition) const;
  // Whether the replica accepts a request routed by `epoch`.
  absl::Status CheckServes(Replica& replica, uint64_t epoch) const PAWL_REQUIRES(replica.mu);
  // Like CheckServes, for changes by a logical worker or client. Until the job has started, the
  // scheduler may restart the partition on another server (HeartbeatResponse.job_started), so a
  // primary without followers also needs its lease.
  absl::Status CheckTakesChanges(Replica& replica, uint64_t epoch) const PAWL_REQUIRES(replica.mu);
  // HeartbeatResponse.job_started; once true, it stays true for the job.
  bool HasStarted() const;
  // OK only if no other server can have become the primary, so that reads here are current.
  absl::Status CheckLease(Replica& replica) const PAWL_REQUIRES(replica.mu);

  void Push(IncomingMessage message, CallContext context, Reply reply);
  void Pull(IncomingMessage message, CallContext context, Reply reply);
  void Scan(IncomingMessage message, Reply reply);
  void EndStep(IncomingMessage message, CallContext context, Reply reply);
  // Whether the replica answers AWAIT_ALL, perhaps later.
  absl::Status CheckGivesSquares(Replica& replica, const Sender& sender, uint64_t epoch) const
      PAWL_REQUIRES(replica.mu);
  // EndStepRequest.AWAIT_ALL.
  void AwaitAllEnds(const RequestHeader& header, const Sender& sender, std::vector<StepEnd> ends,
                    CallContext context, Reply reply);
  void TakeOver(IncomingMessage message, CallContext context, Reply reply);
  absl::StatusOr<std::vector<StepEnd>> StepEnds(const View& view,
                                                const EndStepRequest& request) const;
  static absl::Status NoSuchTable(uint32_t table);
  absl::Status TooManyBytesInFlight() const;
  absl::Status TooManyBytesWait() const;
  // OK if the log has room for a change of that many bytes.
  absl::Status CheckLogHasRoom(uint64_t bytes) const;
  // A push from its arrival to its answer.
  struct PushInProgress;
  // Checks all that needs no lock, so that a push that is wrong in any part changes nothing. Fills
  // in the sender, the view and the bytes in flight, which it reserves.
  absl::Status CheckPush(PushInProgress& push);
  // Reserves push.bytes_in_flight. RESOURCE_EXHAUSTED: the client must retry later.
  absl::Status ReserveInFlight(PushInProgress& push);
  // Reserves bytes for the wait for a step in place of those in flight, or leaves the push
  // unchanged. RESOURCE_EXHAUSTED: as above.
  absl::Status ReserveToWait(PushInProgress& push);
  // How long to delay the push for learners (backpressure.h). RESOURCE_EXHAUSTED: the client must
  // retry later.
  absl::StatusOr<MonotonicDuration> ThrottlePush(const View& view, const RequestView& request);
  // Applies the remaining segments and answers when they are committed. A refusal leaves the
  // partitions before it changed; a repetition with the same push ids completes the push.
  void ApplyPush(std::shared_ptr<PushInProgress> push);
  // Applies the next segments, as far as they are of one partition, under its lock. False: the
  // partition has not reached the push's step.
  absl::StatusOr<bool> ApplyNextPartition(PushInProgress& push);
  // A pull from its arrival to its answer.
  struct PullInProgress;
  absl::StatusOr<OutgoingMessage> AnswerPull(const View& view, const Sender* sender,
                                             const RequestView& request,
                                             const std::vector<PullBytes>& bytes_of,
                                             std::shared_ptr<const ByteReservation> reservation);
  absl::StatusOr<OutgoingMessage> AnswerScan(const ScanRequest& request);
  // The rows of a table in a partition that this server serves now.
  absl::StatusOr<HeldTable> HoldTable(Replica& replica, uint64_t epoch, uint32_t table) const;
  // Changes a primary's partition with `apply`. All changes except those replicated from other
  // servers come through here. If the partition changed, its log and followers get `change` (index
  // and partition are filled in), and a due cut is taken. A duplicate changes nothing, but its
  // caller still waits for the partition's last change.
  absl::Status Change(const std::shared_ptr<Replica>& replica, ChangeView& change,
                      const ChangeMemory& memory, absl::FunctionRef<absl::Status(Partition&)> apply,
                      Changes& changes) PAWL_REQUIRES(replica->mu);
  // Runs one(i, changes) for each i below `count`; `one` locks the replica and calls Change. After
  // an error no further one starts. Then runs `done`, with the first error or once everything is
  // committed. ShareWork says what `one` may do; `helpers` may be null. Without a context,
  // control_deadline limits only the wait for the commit, not the work.
  void ChangeMany(HelperThreads* helpers, size_t count,
                  std::function<absl::Status(size_t, Changes&)> one,
                  std::optional<CallContext> context, Done done);
  void Record(Replica& replica, ChangeView& change, const ChangeMemory& memory)
      PAWL_REQUIRES(replica.mu);
  // Starts to write and to send what Record has queued. Call it without locks.
  void SendChanges();
  // Marks the replica's last change.
  static ChangeMark MarkOf(const std::shared_ptr<Replica>& replica) PAWL_REQUIRES(replica->mu) {
    return {replica, replica->partition->log_index(), replica->primary_since};
  }
  // Applies `apply` to every partition whose primary this server is, and waits for the commit.
  void ChangeAll(uint64_t epoch, const ChangeView& change,
                 std::function<absl::Status(Partition&)> apply, Done done);
  absl::StatusOr<std::shared_ptr<const View>> ViewAt(uint64_t epoch) const;
  static absl::Status CheckIsAt(Replica& replica, uint64_t step) PAWL_REQUIRES(replica.mu);
  // Replicator::Owner.
  ReplicationHeader Header() const override;
  std::shared_ptr<Replica> FindReplica(uint32_t partition) const override;
  void OnAdvanced(const std::shared_ptr<Replica>& replica) override;
  void EndHandovers();
  void PrepareReport();
  // Records whether the log can be written, and reports a failure.
  void WatchDisk(const View& view, HeartbeatRequest& report);
  // Adds the figures of some of the primaries, in turn.
  void AddPartitionFigures(const View& view, HeartbeatRequest& report) PAWL_REQUIRES(report_mu_);
  // Whether half of the lease has passed without an answer, so that backups must be asked for
  // promises.
  bool SchedulerIsSilent() const;
  // Answers with an error. Counts and logs requests that were refused for their content.
  void Refuse(Method method, const RequestHeader* header, absl::Status status, Reply& reply);

  const DataPlaneOptions options_;
  const Clock& clock_;
  // Constant once there is a routing table.
  DurableLog* log_ = nullptr;
  JobMembership* const membership_;
  mutable std::atomic<bool> started_{false};
  ReplicaMap replica_map_;
  WaitingCalls waiting_;
  EntryTail tail_;
  // The job's partitions have several replicas: a follower that is disconnected now may need old
  // entries later.
  std::atomic<bool> is_replicated_{false};
  std::unique_ptr<Replicator> replicator_;
  ReplicaReceiver receiver_;

  mutable Mutex closed_mu_;
  absl::Status closed_ PAWL_GUARDED_BY(closed_mu_);
  MonotonicDuration lease_ PAWL_GUARDED_BY(closed_mu_) = MonotonicDuration::zero();
  // Empty: senders need no tickets.
  std::string ticket_key_ PAWL_GUARDED_BY(closed_mu_);
  MonotonicTime next_promise_ PAWL_GUARDED_BY(closed_mu_) = MonotonicTime::min();

  mutable Mutex report_mu_;
  // The content of the next heartbeat.
  HeartbeatRequest report_ PAWL_GUARDED_BY(report_mu_);
  MonotonicTime next_report_ PAWL_GUARDED_BY(report_mu_) = MonotonicTime::min();
  DiskWatch disk_ PAWL_GUARDED_BY(report_mu_);
  // The partition that was reported last.
  size_t last_reported_ PAWL_GUARDED_BY(report_mu_) = 0;

  // See ByteReservation.
  const std::shared_ptr<std::atomic<size_t>> bytes_in_flight_ =
      std::make_shared<std::atomic<size_t>>(0);
  const std::shared_ptr<std::atomic<size_t>> bytes_waiting_for_step_ =
      std::make_shared<std::atomic<size_t>>(0);
  std::atomic<uint64_t> requests_refused_{0};
  std::atomic<uint64_t> pushes_delayed_{0};
  std::atomic<uint64_t> pushes_refused_{0};
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_
