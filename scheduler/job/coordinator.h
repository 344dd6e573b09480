// The scheduler's core: what every rpc of the Scheduler service does.
#ifndef PAWL_SCHEDULER_JOB_COORDINATOR_H_
#define PAWL_SCHEDULER_JOB_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/checkpoint.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/checkpoint/checkpoint_repairs.h"
#include "scheduler/checkpoint/checkpoints.h"
#include "scheduler/checkpoint/end_checkpoint_attempts.h"
#include "scheduler/evaluation/evaluations.h"
#include "scheduler/job/coordinator_options.h"
#include "scheduler/job/job_state_machine.h"
#include "scheduler/job/running_clock.h"
#include "scheduler/job/save_gate.h"
#include "scheduler/job/table_catalogue.h"
#include "scheduler/membership/barriers.h"
#include "scheduler/membership/logical_workers.h"
#include "scheduler/membership/membership.h"
#include "scheduler/membership/worker_group.h"
#include "scheduler/placement/replica_director.h"
#include "scheduler/routing/routing_tables.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/pending_calls.h"
#include "scheduler/rpc/pending_rpcs.h"
#include "scheduler/rpc/server_caller.h"
#include "scheduler/rpc/server_rounds.h"
#include "scheduler/status/event_log.h"
#include "scheduler/status/metrics_file.h"
#include "scheduler/store/state_saver.h"

namespace pawl {

// Decides everything the scheduler decides and knows neither gRPC nor files nor threads: requests,
// time and servers' answers come in, answers and calls go out. Rpcs that wait are kept as
// callbacks; nothing polls and nothing blocks. Thread-safe. Callbacks run on the thread that
// brought about their answer, outside the lock; they may call the Coordinator again, and must not
// block. The owner calls Tick every kTickInterval.
//
// Invariants:
//  1. Every `done` runs exactly once: with its answer, or by Cancel, or when the job is over.
//  2. The job ends once: COMPLETED only after the report has been written, FAILED naming who or
//  what did it.
//  3. A incarnation whose lease has run out gets ABORTED, for good.
//  4. With Options::state_changed, nothing is told to anybody, by whatever rpc or call, before the
//  state that it
//     comes from is saved; until HoldNothingBack.
//  5. Nobody is late for a time in which this process did not run.
class Coordinator {
 public:
  using Options = CoordinatorOptions;

  // `clock` and `servers` outlive the Coordinator; callbacks of `servers` must not run after its
  // destruction. With `saved`, which must be of the same job, it goes on where that was saved.
  Coordinator(Options options, const Clock& clock, ServerCaller& servers,
              const SchedulerState* saved = nullptr);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // What is told at once, as far as it is saved; proto/scheduler.proto says what each does.
  absl::StatusOr<HeartbeatResponse> Heartbeat(const HeartbeatRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<GetStatusResponse> GetStatus(const GetStatusRequest& request) PAWL_EXCLUDES(mu_);
  // EventLog::counts.
  std::map<EventKind, uint64_t> EventCounts() const PAWL_EXCLUDES(mu_);

  // Rpcs that may wait; some only until what they have changed is saved, those cannot be cancelled
  // and have ticket 0. `done` may run before they return. coordinator_nodes.cc
  Ticket Register(const RegisterRequest& request, Done<RegisterResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Goodbye(const GoodbyeRequest& request, Done<GoodbyeResponse> done) PAWL_EXCLUDES(mu_);
  // coordinator_calls.cc
  Ticket GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) PAWL_EXCLUDES(mu_);
  Ticket ConfirmRouting(const ConfirmRoutingRequest& request, Done<ConfirmRoutingResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket GiveUpRanks(const GiveUpRanksRequest& request, Done<GiveUpRanksResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ListTables(const ListTablesRequest& request, Done<ListTablesResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket Barrier(const BarrierRequest& request, Done<BarrierResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ReportEvaluation(const ReportEvaluationRequest& request,
                          Done<ReportEvaluationResponse> done) PAWL_EXCLUDES(mu_);
  // coordinator_group.cc
  Ticket JoinGroup(const JoinGroupRequest& request, Done<JoinGroupResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ExchangeInGroup(const ExchangeInGroupRequest& request, Done<ExchangeInGroupResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket WatchGroup(const WatchGroupRequest& request, Done<WatchGroupResponse> done)
      PAWL_EXCLUDES(mu_);
  // coordinator_checkpoints.cc
  Ticket Checkpoint(const CheckpointRequest& request, Done<CheckpointResponse> done)
      PAWL_EXCLUDES(mu_);
  // coordinator_scale.cc
  Ticket Scale(const ScaleRequest& request, Done<ScaleResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Drain(const DrainRequest& request, Done<DrainResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ReleaseKept(const ReleaseKeptRequest& request, Done<ReleaseKeptResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ListEvents(const ListEventsRequest& request, Done<ListEventsResponse> done)
      PAWL_EXCLUDES(mu_);
  // coordinator_end.cc
  Ticket FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket StopJob(const StopJobRequest& request, Done<StopJobResponse> done) PAWL_EXCLUDES(mu_);

  // The caller is gone or its deadline has passed: answers the call, if it still waits, with
  // CANCELLED or DEADLINE_EXCEEDED. A party whose deadline passes at a barrier fails the barrier.
  void Cancel(Ticket ticket, bool deadline_passed) PAWL_EXCLUDES(mu_);

  // A file of the checkpoint of that step in the job's folder is damaged, which no other call has
  // reported: another checkpoint is made there. `damage` names the file and the offset.
  void OnCheckpointDamaged(uint64_t step, bool of_end, const absl::Status& damage)
      PAWL_EXCLUDES(mu_);
  // Since the Coordinator was made; also in GetStatusResponse.counters, with the servers' files.
  CheckpointFileCounts CheckpointFiles() const PAWL_EXCLUDES(mu_);

  // Looks for leases that have run out, moves replicas, and asks servers again.
  void Tick() PAWL_EXCLUDES(mu_);

  // The job ends as STOPPED.
  void Stop(absl::string_view reason) PAWL_EXCLUDES(mu_);

  // Everybody has heard of the job's end: whoever finds this state begins another job.
  void Close() PAWL_EXCLUDES(mu_);

  // For the last moments of the process, once Close is saved: nothing waits for a save any more, so
  // that whoever still calls is answered, and the server can end, though the store fails. Whoever
  // finds the state leaves the job alone.
  void HoldNothingBack() PAWL_EXCLUDES(mu_);

  // The newest state, if it is not saved yet. Its change goes to StateIsSaved once it is. For one
  // thread.
  std::optional<UnsavedState> TakeUnsaved() PAWL_EXCLUDES(mu_);
  void StateIsSaved(uint64_t change) PAWL_EXCLUDES(mu_);

  // COMPLETED, FAILED and STOPPED are final.
  JobState state() const PAWL_EXCLUDES(mu_);
  // The state is final and saved, and the report has been written.
  bool over() const PAWL_EXCLUDES(mu_);
  // Every node has said good-bye or has died.
  bool AllNodesGone() const PAWL_EXCLUDES(mu_);

 private:
  // What nodes have been told, or may be.
  struct View {
    JobState state = STARTING;
    std::string reason;
    std::shared_ptr<const RoutingTable> routing;
  };
  // coordinator_section.h: every function that takes the lock and decides something does so by one
  // of these.
  class Section;
  template <typename Response>
  class Rpc;
  // Lets `actions` go if all is saved; else they wait for it.
  void EndSection(DeferredActions& actions) PAWL_REQUIRES(mu_);
  View PresentView() PAWL_REQUIRES(mu_);
  // `view` is saved.
  void Publish(View view, DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_nodes.cc: what follows when something has changed.
  // Those that would come back under their own names.
  std::vector<const Node*> ServersHeardOf() const PAWL_REQUIRES(mu_);
  void PlaceIfServersAreThere(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // The server acts by this routing, as another call than a heartbeat says; without effect of what
  // was never told.
  void HasAdopted(const std::string& name, uint64_t incarnation, uint64_t epoch,
                  DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnPlacementChanged(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Something has changed that ranks depend on: gives them out anew and tells the workers.
  void PlaceRanksOnWorkers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // What their hosts had begun at the scheduler others begin anew.
  void RanksAreFree(const std::vector<LogicalWorkers::FreeRank>& ranks) PAWL_REQUIRES(mu_);
  void StartIfAllAreThere() PAWL_REQUIRES(mu_);
  // `how[i]` says how nodes[i] went. dead: nobody asked for it.
  void NodesAreGone(const std::vector<Node>& nodes, const std::vector<std::string>& how, bool dead,
                    DeferredActions& actions) PAWL_REQUIRES(mu_);
  void WorkerIsGone(const Node& worker, const std::string& how, bool dead, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // After a restart, once there is time to act.
  void TakeUpWhatWasUnderWay(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_calls.cc.
  // To those of the worker's calls that do not know it yet.
  void AnswerAssignment(const std::string& worker, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // REQUIRES: Membership::CheckProgress has found it possible.
  void NoteProgress(const WorkerProgress& progress, Node& worker) PAWL_REQUIRES(mu_);

  // coordinator_group.cc.
  WorkerGroup::Hosts HostsOfRanks() const PAWL_REQUIRES(mu_);
  // Ranks may have other hosts, or workers be gone: ends the group, or forms one, and answers those
  // who wait for it.
  void UpdateGroup(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // If it is one that waits to join.
  bool CancelJoin(Ticket ticket, const absl::Status& status, DeferredActions& actions)
      PAWL_REQUIRES(mu_);

  // coordinator_rounds.cc: what is asked of servers.
  void CreateTableOnServers(uint32_t table, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Those of the ranks that are free hold nobody back any more, in the modes in which they would.
  // Without effect before the servers are ready: what is free then is released when they are.
  void ReleaseOnServers(const std::vector<LogicalWorkers::FreeRank>& ranks,
                        DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ReleaseOnServers(const LogicalWorkers::FreeRank& rank, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // The last part of an evaluation is there; runs outside the lock.
  void EvaluationIsComplete(const EvaluationInput& input) PAWL_EXCLUDES(mu_);
  void PublishEvaluation(const EvaluationResult& result, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // For what reads every parameter of a server.
  MonotonicDuration TimeToRead(MonotonicDuration least) const PAWL_REQUIRES(mu_);

  // coordinator_checkpoints.cc.
  void RequestRepairIfDue(MonotonicTime now) PAWL_REQUIRES(mu_);
  void BeginCheckpointIfDue(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointOnServers(const Checkpoints::Order& order, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // All servers have written their parts.
  void WriteCheckpoint(const Checkpoints::Order& order, const StoredEvaluations& evaluations_before,
                       std::vector<CheckpointPart> parts, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void CheckpointIsWritten(const Checkpoints::Order& order,
                           const absl::StatusOr<std::string>& folder) PAWL_EXCLUDES(mu_);
  void CheckpointHasFailed(const Checkpoints::Order& order, const absl::Status& status,
                           DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Those that a job which is restored from the end does not make again.
  StoredEvaluations EvaluationsBeforeEnd() const PAWL_REQUIRES(mu_);
  // What a job that is restored from that checkpoint goes on with.
  SchedulerState StateAt(const Checkpoints::Order& order,
                         const StoredEvaluations& evaluations_before) const PAWL_REQUIRES(mu_);
  void BeginWith(const StoredRestore& restore, const SchedulerState& state) PAWL_REQUIRES(mu_);
  // The job is restored, and the servers have not loaded all of it yet: nobody else may use them.
  bool loading() const PAWL_REQUIRES(mu_) { return restore_.has_value() && !restore_->loaded(); }
  void LoadOnServers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // No partition needs to have had a change yet: the creation of a table is the first one that must
  // be in all of them.
  bool nothing_yet() const PAWL_REQUIRES(mu_) {
    return !rebuilt_ && (restore_.has_value() ? loading() : !tables_.AnyIsReady());
  }
  // The servers are placed, and have what the job begins with.
  bool servers_are_ready() const PAWL_REQUIRES(mu_) { return director_.placed() && !loading(); }

  // coordinator_scale.cc.
  // Nodes that are there and not on their way out, by number.
  std::vector<const Node*> Staying(Role role) const PAWL_REQUIRES(mu_);
  void TellToLeave(const Node& node, const std::string& why, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // How many there must be before ranks are given out.
  uint32_t WantedWorkers() const PAWL_REQUIRES(mu_);
  absl::Status CheckScale(const ScaleRequest& request) const PAWL_REQUIRES(mu_);
  absl::Status CheckDrain(const DrainRequest& request) const PAWL_REQUIRES(mu_);

  // coordinator_end.cc. A job that has been trained goes through these stages, in this order. They
  // are not saved: a scheduler that goes on there begins with the first one, since all that is
  // asked of servers may be asked again.
  enum class EndStage {
    kNone,
    kRestoringBest,
    // Before the digest, which can be had from the checkpoint: the model can be had from nothing
    // else if the digest fails. Both are of the same parameters if no client pushes any more. What
    // one pushes now is in some parts of the checkpoint and not in others (a server takes its
    // partitions one after the other), and all of it may be in the digest.
    kCheckpointing,
    kInspecting,
    // The result is there and being written: nothing can fail the job but the writing. Also of a
    // job that has come to another end.
    kReporting,
    kReported,
  };
  struct End {
    EndStage stage = EndStage::kNone;
    EndCheckpointAttempts checkpoint_attempts;
    // kInspecting is done.
    std::optional<uint32_t> digest;
    std::optional<ServerCounters> counters;
  };
  void FinishIfAllWorkIsDone(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void EnterStage(EndStage stage, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void RestoreBestIfKept(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointEndIfWanted(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointEndAt(uint64_t step, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ContinueCheckpointOfEnd(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void EndCheckpointHasFailed(const Checkpoints::Order& order, const absl::Status& status,
                              DeferredActions& actions) PAWL_REQUIRES(mu_);
  void GiveUpEndCheckpoint(const Checkpoints::Order& order, const absl::Status& status,
                           DeferredActions& actions) PAWL_REQUIRES(mu_);
  // There is one, or there will be none.
  void EndCheckpointIsDecided(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void GatherResult(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ReportResult(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ReportIsWritten(const absl::Status& status) PAWL_EXCLUDES(mu_);
  void FailJob(const std::string& failure, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void StopJobFor(const std::string& reason, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Answers everybody who waits; to be called once the job is over.
  void EndEverything(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // OK if the job goes on and one more call may wait.
  absl::Status CheckCanWait() PAWL_REQUIRES(mu_);
  absl::StatusOr<Node*> FindWorker(const std::string& node, uint64_t incarnation)
      PAWL_REQUIRES(mu_);
  // Both: the job goes on, and a worker that is a node of it may wait.
  absl::Status CheckWorkerCanWait(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu_);
  void LogState(absl::string_view from) PAWL_REQUIRES(mu_);

  // coordinator_state.cc: what is shown and what is saved.
  GetStatusResponse Status() const PAWL_REQUIRES(mu_);
  JobReport Report() const PAWL_REQUIRES(mu_);
  SchedulerState State() const PAWL_REQUIRES(mu_);
  // A longer one than before only once it is saved that it is given.
  std::chrono::milliseconds LeaseToGive() const PAWL_REQUIRES(mu_);
  void GoOnFrom(const SchedulerState& stored) PAWL_REQUIRES(mu_);

  const Options options_;
  const bool serve_only_;
  // Only for how long the training took.
  const Clock& clock_;
  ServerCaller& servers_;

  mutable Mutex mu_;
  // For everything that has a limit in time.
  RunningClock running_ PAWL_GUARDED_BY(mu_);
  const MonotonicTime created_;
  MonotonicTime last_tick_ PAWL_GUARDED_BY(mu_);
  // After a restart: nothing is moved before, since not everybody has said yet what it is about.
  MonotonicTime moves_from_ PAWL_GUARDED_BY(mu_);
  JobStateMachine state_ PAWL_GUARDED_BY(mu_);
  Membership membership_ PAWL_GUARDED_BY(mu_);
  EventLog events_ PAWL_GUARDED_BY(mu_);
  // The last change by which a node was told to leave.
  uint64_t leave_change_ PAWL_GUARDED_BY(mu_) = 0;
  // A change at which nothing_yet() no longer held; it never does again.
  std::optional<uint64_t> begun_change_ PAWL_GUARDED_BY(mu_);
  // Of all schedulers of this job, this one included; of those before it.
  std::chrono::milliseconds longest_lease_ PAWL_GUARDED_BY(mu_){};
  std::chrono::milliseconds former_lease_ PAWL_GUARDED_BY(mu_){};
  // The change that stores longest_lease_.
  uint64_t lease_change_ PAWL_GUARDED_BY(mu_) = 0;
  // How many servers and workers there are to be.
  ScaleStatus scale_ PAWL_GUARDED_BY(mu_);
  ReplicaDirector director_ PAWL_GUARDED_BY(mu_);
  LogicalWorkers logical_workers_ PAWL_GUARDED_BY(mu_);
  TableCatalogue tables_ PAWL_GUARDED_BY(mu_);
  Barriers barriers_ PAWL_GUARDED_BY(mu_);
  // Not saved: whoever takes the job over forms another one.
  WorkerGroup group_ PAWL_GUARDED_BY(mu_);
  Evaluations evaluations_ PAWL_GUARDED_BY(mu_);
  Checkpoints checkpoints_ PAWL_GUARDED_BY(mu_);
  // Not saved: a scheduler that takes the job over finds the damaged files itself.
  CheckpointRepairs repairs_ PAWL_GUARDED_BY(mu_);
  // The checkpoint that the job has begun with.
  std::optional<StoredRestore> restore_ PAWL_GUARDED_BY(mu_);
  ServerRounds rounds_ PAWL_GUARDED_BY(mu_);

  // Of the director's placement.
  RoutingTables routings_ PAWL_GUARDED_BY(mu_);
  // The director's primaries_since() that rounds_ knows.
  uint64_t targets_since_ PAWL_GUARDED_BY(mu_) = 0;
  // Something has happened after which there may be a step of the placement to do; or time has
  // passed.
  bool replan_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime planned_ PAWL_GUARDED_BY(mu_);
  // From a saved state, and has not taken up yet what was under way then.
  bool goes_on_ PAWL_GUARDED_BY(mu_) = false;
  // SchedulerState's.
  bool rebuilt_ PAWL_GUARDED_BY(mu_) = false;

  SaveGate gate_ PAWL_GUARDED_BY(mu_);
  View told_ PAWL_GUARDED_BY(mu_);
  // What TakeUnsaved has given away.
  View being_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime figures_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime callers_pruned_ PAWL_GUARDED_BY(mu_);
  bool closed_ PAWL_GUARDED_BY(mu_) = false;

  End end_ PAWL_GUARDED_BY(mu_);

  PendingRpcs pending_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_H_
