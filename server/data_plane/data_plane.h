// What a server does with requests: Push, Pull, EndStep, TakeOver, and what the scheduler asks of
// it.
#ifndef PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_
#define PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_

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
#include "server/storage/block_file.h"
#include "server/threads/helper_threads.h"

namespace pawl {

// A partition at the moment of a cut, and the last change in it.
struct TakenCut {
  ChangeMark mark;
  HeldSnapshot snapshot;
};

struct DataPlaneOptions {
  // Of requests that are being worked on or wait, of the answers to them, and of pushes that the
  // log or a backup has not taken yet. Beyond it a request is refused with RESOURCE_EXHAUSTED and
  // told when to come back.
  size_t max_bytes_in_flight = size_t{2} << 30;
  // Calls that wait for a step or for replicas. More than all workers of a large job can have.
  size_t max_waiting_calls = 65536;
  // Of the requests of pulls that wait. (Those of pushes are in flight all the while; a pull that
  // waits must not keep out the push that it waits for.) Beyond it they are refused likewise.
  size_t max_waiting_pull_bytes = size_t{256} << 20;
  // Of snapshots of which not all has arrived.
  size_t max_bytes_arriving = kMaxBytesArriving;
  // See EntryTail.
  size_t max_tail_bytes = kMaxTailBytes;
  // See PartitionOptions.
  uint64_t max_rows_per_partition = uint64_t{1} << 26;
  // Processor time that this process has taken, to be told. Null: nobody knows.
  std::function<double()> cpu_seconds;
  // How long the scheduler waits for the next call of a server, with what it needs from it.
  std::chrono::seconds control_deadline{20};
  // Who helps where a call has work in many partitions (a step of SYNC closes, digests, the best
  // parameters); null: nobody. To be stopped before the data plane is destroyed.
  HelperThreads* helpers = nullptr;
  ReplicatorOptions replication;
};

// The replicas of one server and the requests on them. It owns no thread and knows no
// gRPC: calls run on the threads that bring them, and on those that help; a call that waits is
// answered on the thread that brings what it waited for. The owner calls Tick now and then.
// Thread-safe.
//
// Order of locks: that of adoption (ReplicaMap), then a replica's, one at a time, then those of the
// view (ReplicaMap), the replicator, a lane or the log.
class DataPlane final : public RequestHandler {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // `peers` reaches other servers; null: nothing can be replicated. `lease_until` says until when,
  // by LeaseNow, this server is alive by the scheduler's word; null: for ever. `has_begun`: the
  // scheduler has said so of the job (HasBegun), and this server acts by a routing of its present
  // incarnation; null: always. All outlive this, and no callback of theirs runs after its
  // destruction.
  DataPlane(const DataPlaneOptions& options, const Clock& clock, Transport* peers = nullptr,
            std::function<MonotonicTime()> lease_until = nullptr,
            std::function<bool()> has_begun = nullptr);
  ~DataPlane() override;

  // Where changes are written down; without it durability is MEMORY. REQUIRES: not after Begin; as
  // for `peers`.
  void SetLog(DurableLog& log);

  // Tells what job this is (with its defaults resolved, as registration gives it) and who this
  // server is. Before it, and before the first routing table, every call gets UNAVAILABLE. Again:
  // in another incarnation.
  void Begin(const RegisterResponse& registration);
  // See ReplicaMap::AddRecovered.
  void AddRecovered(std::unique_ptr<Partition> partition) {
    replica_map_.AddRecovered(std::move(partition));
  }
  uint64_t job_id() const { return replica_map_.view()->job_id; }

  // Takes the roles that `routing` gives to this server. Older epochs are ignored. REQUIRES: Begin.
  void AdoptRouting(const RoutingTable& routing);
  // The roles are those of a routing that this incarnation has adopted.
  bool IsRouted() const;
  uint64_t epoch() const { return replica_map_.view()->epoch; }
  // For the sake of learners (backpressure.h).
  uint64_t pushes_delayed() const { return pushes_delayed_; }
  uint64_t pushes_refused() const { return pushes_refused_; }
  // See ReplicaMap.
  uint64_t EpochToConfirm() const { return replica_map_.EpochToConfirm(); }
  void OnConfirmed(uint64_t epoch);
  // The log's DurableIndex of the partition has risen. False, and nothing happens, if another
  // thread holds the replica's lock. REQUIRES: SetLog.
  bool OnDurable(uint32_t partition);
  // The replica as it is now, to be written down; nothing if it is not here or has no data.
  std::optional<HeldSnapshot> Hold(uint32_t partition) const;
  // Says in a heartbeat how the replicas stood at the last Tick: never waits for work that is being
  // done on one.
  void FillHeartbeat(HeartbeatRequest& request) const;
  // The replicas that have data: what this server can bring into its next incarnation. A learner
  // may have been made a backup without having heard of it; which of them were in sync the
  // scheduler knows.
  std::vector<RecoveredReplica> ReplicasWithData() const;
  // What it knows of the job, but for HeldJob.job. Empty before the first routing.
  std::optional<HeldJob> Held() const;
  // The partitions of which it would answer a pull now, routed by its own epoch: at no time do two
  // servers. Ascending.
  std::vector<uint32_t> Served() const;
  // By the newest routing no replica is here, or only such as others have too.
  bool HostsNothing() const;
  // There are other servers by the newest routing.
  bool HasPeers() const { return replica_map_.view()->routing.servers_size() > 1; }

  // RequestHandler.
  void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) override;

  // ServerControl; see proto/server_control.proto. `epoch` is the caller's; `done` may run before
  // they return.
  void CreateTable(uint64_t epoch, const TableSpec& spec, Done done);
  void KeepBest(uint64_t epoch, uint64_t step, Done done);
  void RestoreBest(uint64_t epoch, Done done);
  void ReleaseLogicalWorker(uint64_t epoch, uint32_t rank, uint64_t incarnation, Done done);
  absl::StatusOr<InspectResponse> Inspect(uint64_t epoch, bool digest);
  absl::StatusOr<FingerprintResponse> Fingerprint(uint64_t epoch);

  // Checkpoints (data_plane_checkpoint.cc); `epoch` as above.
  //
  // Sets `cut` in every partition whose primary this server is, in place of any other, but in those
  // that have been cut
  // (`has`, which is called under the replica's lock); returns all of these partitions.
  // OUT_OF_RANGE: one has reached its step already; then it is set nowhere.
  absl::StatusOr<std::vector<uint32_t>> SetCut(uint64_t epoch,
                                               const std::shared_ptr<const Cut>& cut,
                                               absl::FunctionRef<bool(uint32_t partition)> has);
  // Not to be taken any more, where it has not been.
  void DropCut(const std::shared_ptr<const Cut>& cut);
  // The same partitions where nobody trains any more. FAILED_PRECONDITION: one is not at the step.
  absl::StatusOr<std::vector<uint32_t>> PrimariesAt(uint64_t epoch, uint64_t step) const;
  // One of them as it is now. ABORTED: it has moved. FAILED_PRECONDITION: it is not at the step.
  absl::StatusOr<TakenCut> TakeCutNow(uint32_t partition, uint64_t step) const;
  // `done` runs when the changes are committed; ABORTED: a partition has moved before.
  void AwaitCommit(const std::vector<ChangeMark>& changes, Done done);
  // The partitions whose primary this server is, with the log index of each.
  absl::StatusOr<std::vector<RecoveredReplica>> Primaries(uint64_t epoch) const;
  // A partition as it was saved, made one of this job's.
  absl::StatusOr<std::unique_ptr<Partition>> LoadSaved(BlockFileReader& file,
                                                       uint32_t partition) const;
  // Puts a partition in place that nobody has changed yet, and writes it to the log.
  // FAILED_PRECONDITION: somebody has.
  absl::Status PutInPlace(std::unique_ptr<Partition> partition);
  // Waits until the log, if there is one, is durable up to that change; as
  // DurableLog::AwaitDurable.
  absl::Status AwaitDurable(uint32_t partition, uint64_t log_index) const;

  // `may_be_old`: figures of a partition that is busy are those of the last call, so that it never
  // waits long.
  ServerCounters Counters(bool may_be_old);

  // Answers waiting calls whose deadline has passed or whose caller is gone, and keeps replication
  // going.
  void Tick();
  // Answers all waiting calls, and every call from now on, with `status`, and sends nothing more to
  // other servers: the job is over or this server is.
  void Close(absl::Status status);
  // REQUIRES: there are peers.
  const CatchUpFigures& catch_up_figures() const { return replicator_->figures(); }
  // What has to be copied to other servers is copied as fast as it can be from now on.
  void LiftRepairLimit();

 private:
  using View = ReplicaMap::View;

  // Where a step ends, and after how many segments.
  struct StepEnd {
    std::shared_ptr<Replica> replica;
    std::optional<uint64_t> segments;
  };

  // What is left to do, without locks, for whoever has changed partitions.
  struct Changes {
    // To be waited for.
    std::vector<ChangeMark> marks;
    // They may go on.
    std::vector<std::shared_ptr<WaitingCall>> ready;
  };

  // Where the keys and values of a change lie. The log and the lanes keep the reservation too: a
  // call that waits for them may end before they are done. The tail does not, and counts the
  // `bytes` of `owner` itself.
  struct ChangeMemory {
    std::shared_ptr<const void> owner;
    size_t bytes = 0;
    std::shared_ptr<const ByteReservation> reservation;
  };

  absl::StatusOr<std::shared_ptr<const View>> Admit(const RequestHeader& header,
                                                    Sender& sender) const;
  // The replica, if the routing has it here.
  absl::StatusOr<std::shared_ptr<Replica>> Find(const View& view, uint32_t partition) const;
  // Whether the replica takes a request that was routed by `epoch`.
  absl::Status CheckServes(Replica& replica, uint64_t epoch) const PAWL_REQUIRES(replica.mu);
  // The same for what a logical worker or client changes. Until the job has begun, the scheduler
  // may start the partition again on another server (HeartbeatResponse.begun), so a primary without
  // followers needs its lease too.
  absl::Status CheckTakesChanges(Replica& replica, uint64_t epoch) const PAWL_REQUIRES(replica.mu);
  // HeartbeatResponse.begun; stays true for the job.
  bool HasBegun() const;
  // Returns OK only if no other server can have become the primary, so that what is read here is
  // current.
  absl::Status CheckLease(Replica& replica) const PAWL_REQUIRES(replica.mu);

  void Push(IncomingMessage message, CallContext context, Reply reply);
  void Pull(IncomingMessage message, CallContext context, Reply reply);
  void EndStep(IncomingMessage message, CallContext context, Reply reply);
  void TakeOver(IncomingMessage message, CallContext context, Reply reply);
  absl::StatusOr<std::vector<StepEnd>> StepEnds(const View& view,
                                                const EndStepRequest& request) const;
  static absl::Status NoSuchTable(uint32_t table);
  absl::Status TooManyBytesInFlight() const;
  absl::Status TooManyBytesWait() const;
  // OK if the log takes a change with so many bytes.
  absl::Status CheckLogHasRoom(uint64_t bytes) const;
  // How long the push is to wait for the sake of learners (backpressure.h). RESOURCE_EXHAUSTED: it is
  // to come again.
  absl::StatusOr<MonotonicDuration> BrakePush(const View& view, const PushRequestView& request);
  // Applies the push by `act` when its step has come.
  void TakeTurn(const View& view, const Sender& sender, const PushRequestView& request,
                const std::vector<std::shared_ptr<Replica>>& replicas, CallContext context,
                absl::AnyInvocable<void(absl::Status)> act);
  // What of the push the partitions would refuse.
  absl::Status CheckPush(const View& view, const Sender& sender,
                         const PushRequestView& request) const;
  // `message` keeps the request's memory.
  absl::StatusOr<PushResponse> ApplyPush(const View& view, const Sender& sender,
                                         const PushRequestView& request,
                                         const std::shared_ptr<const void>& message,
                                         size_t message_bytes,
                                         const std::shared_ptr<const ByteReservation>& reservation,
                                         Changes& changes);
  absl::StatusOr<OutgoingMessage> AnswerPull(const View& view, const Sender* sender,
                                             const PullRequestView& request,
                                             const std::vector<size_t>& value_bytes,
                                             std::shared_ptr<const ByteReservation> reservation);
  // Changes a primary's partition by `apply`: all changes but those of replicas of others go this
  // way. If it has changed, its log and its followers get `change`, which need not have index and
  // partition; a cut that is due is taken. If it has not (a duplicate), its last change is waited
  // for all the same.
  absl::Status Change(const std::shared_ptr<Replica>& replica, ChangeView& change,
                      const ChangeMemory& memory, absl::FunctionRef<absl::Status(Partition&)> apply,
                      Changes& changes) PAWL_REQUIRES(replica->mu);
  // Changes many: one(i, changes) for each i below `count`, which locks the replica and calls
  // Change. After an error no other is begun. Then `done`: with the first error, or once all is
  // committed. ShareWork tells what holds for `one`; `helpers` may be null. Without a context
  // control_deadline is for the waiting alone, not for the work.
  void ChangeMany(HelperThreads* helpers, size_t count,
                  std::function<absl::Status(size_t, Changes&)> one,
                  std::optional<CallContext> context, Done done);
  void Record(Replica& replica, ChangeView& change, const ChangeMemory& memory)
      PAWL_REQUIRES(replica.mu);
  void PumpStreams();
  // That of the last change, to be waited for.
  static ChangeMark MarkOf(const std::shared_ptr<Replica>& replica) PAWL_REQUIRES(replica->mu) {
    return {replica, replica->partition->log_index(), replica->primary_since};
  }
  // Applies `apply` to every partition whose primary this server is, and waits until it is
  // committed.
  void ChangeAll(uint64_t epoch, const ChangeView& change,
                 std::function<absl::Status(Partition&)> apply, Done done);
  absl::StatusOr<std::shared_ptr<const View>> ViewAt(uint64_t epoch) const;
  static absl::Status CheckIsAt(Replica& replica, uint64_t step) PAWL_REQUIRES(replica.mu);
  void OnAdvanced(const std::shared_ptr<Replica>& replica);
  void PrepareReport();
  // Notes whether the log can be written, and says in the report if it cannot.
  void WatchDisk(const View& view, HeartbeatRequest& report);
  // Of some of the primaries, in turn.
  void AddPartitionFigures(const View& view, HeartbeatRequest& report) PAWL_REQUIRES(report_mu_);
  // Half of the lease has gone by without an answer: it is time to ask backups for promises.
  bool SchedulerIsSilent() const;
  // Answers with an error, counting and logging what was refused for its content.
  void Refuse(Method method, const RequestHeader* header, absl::Status status, Reply& reply);

  const DataPlaneOptions options_;
  const Clock& clock_;
  // Not changed once there is a routing table.
  DurableLog* log_ = nullptr;
  const std::function<MonotonicTime()> lease_until_;
  const std::function<bool()> has_begun_;
  mutable std::atomic<bool> begun_{false};
  ReplicaMap replica_map_;
  WaitingCalls waiting_;
  EntryTail tail_;
  // The job's partitions have several replicas: what one lacks may be needed though it does not
  // follow at the moment.
  std::atomic<bool> is_replicated_{false};
  std::unique_ptr<Replicator> replicator_;
  ReplicaReceiver receiver_;

  mutable Mutex closed_mu_;
  absl::Status closed_ PAWL_GUARDED_BY(closed_mu_);
  MonotonicDuration lease_ PAWL_GUARDED_BY(closed_mu_) = MonotonicDuration::zero();
  MonotonicTime next_promise_ PAWL_GUARDED_BY(closed_mu_) = MonotonicTime::min();

  mutable Mutex report_mu_;
  // What the next heartbeat says.
  HeartbeatRequest report_ PAWL_GUARDED_BY(report_mu_);
  MonotonicTime next_report_ PAWL_GUARDED_BY(report_mu_) = MonotonicTime::min();
  DiskWatch disk_ PAWL_GUARDED_BY(report_mu_);
  // The partition of which it told last.
  size_t next_told_ PAWL_GUARDED_BY(report_mu_) = 0;

  // See ByteReservation.
  const std::shared_ptr<std::atomic<size_t>> bytes_in_flight_ =
      std::make_shared<std::atomic<size_t>>(0);
  const std::shared_ptr<std::atomic<size_t>> waiting_pull_bytes_ =
      std::make_shared<std::atomic<size_t>>(0);
  std::atomic<uint64_t> requests_refused_{0};
  std::atomic<uint64_t> pushes_delayed_{0};
  std::atomic<uint64_t> pushes_refused_{0};
};

}  // namespace pawl

#endif  // PAWL_SERVER_DATA_PLANE_DATA_PLANE_H_
