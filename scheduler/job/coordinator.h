// Directs one job: the decisions behind every rpc of the Scheduler service.
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
#include "scheduler/checkpoint/checkpoint_director.h"
#include "scheduler/evaluation/evaluations.h"
#include "scheduler/job/coordinator_options.h"
#include "scheduler/job/group_director.h"
#include "scheduler/job/job_end.h"
#include "scheduler/job/job_state_machine.h"
#include "scheduler/job/running_clock.h"
#include "scheduler/job/save_gate.h"
#include "scheduler/job/table_catalogue.h"
#include "scheduler/membership/barriers.h"
#include "scheduler/membership/logical_workers.h"
#include "scheduler/membership/membership.h"
#include "scheduler/placement/replica_director.h"
#include "scheduler/routing/routing_tables.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/pending_calls.h"
#include "scheduler/rpc/pending_rpcs.h"
#include "scheduler/rpc/server_caller.h"
#include "scheduler/rpc/server_rounds.h"
#include "scheduler/status/event_log.h"
#include "scheduler/status/metrics_file.h"
#include "scheduler/status/user_metrics.h"
#include "scheduler/store/state_saver.h"

namespace pawl {

// Holds the state of the job under one lock and dispatches events: rpcs, time and the answers of
// servers come in; answers and calls to servers go out. The decisions are made by the classes that
// own the parts of the state: Membership (nodes), ReplicaDirector (replicas), LogicalWorkers
// (ranks), GroupDirector (collective groups), CheckpointDirector (checkpoints), Evaluations and
// JobEnd. The Coordinator passes them events and executes what they return. It uses neither gRPC
// nor files nor threads.
//
// Rpcs that wait are kept as callbacks: nothing polls and nothing blocks. Callbacks run outside the
// lock, on the thread whose call led to their answer. They may call the Coordinator and must not
// block. The owner calls Tick every kTickInterval. Thread-safe.
//
// Invariants:
//  1. Every `done` runs exactly once: with its answer, after Cancel, or when the job has ended.
//  2. The job ends once: COMPLETED only after the report was written, FAILED with the cause.
//  3. An incarnation whose lease has expired gets ABORTED from then on.
//  4. With Options::state_changed, no answer and no call leaves before the state that it depends on
//     is saved; until StopHoldingAnswers.
//  5. Time in which this process did not run counts against no deadline of a node.
class Coordinator {
 public:
  using Options = CoordinatorOptions;

  // `clock` and `servers` outlive the Coordinator; callbacks of `servers` must not run after its
  // destruction. With `saved`, a state of the same job, it continues that job.
  Coordinator(Options options, const Clock& clock, ServerCaller& servers,
              const SchedulerState* saved = nullptr);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Rpcs that are answered at once, from the saved state; see proto/scheduler.proto.
  absl::StatusOr<HeartbeatResponse> Heartbeat(const HeartbeatRequest& request) PAWL_EXCLUDES(mu_);
  GetStatusResponse GetStatus() const PAWL_EXCLUDES(mu_);
  // EventLog::counts.
  std::map<EventKind, uint64_t> EventCounts() const PAWL_EXCLUDES(mu_);

  // Rpcs that may wait. `done` may run before they return. A call that waits only for its change to
  // be saved cannot be cancelled and has ticket 0.
  // coordinator_nodes.cc
  Ticket Register(const RegisterRequest& request, Done<RegisterResponse> done) PAWL_EXCLUDES(mu_);
  // The same for a caller whose certificate or token lets it only read.
  Ticket RegisterReader(const RegisterRequest& request, Done<RegisterResponse> done)
      PAWL_EXCLUDES(mu_);
  // UNAUTHENTICATED: the caller that names this node has not its ticket. ABORTED: moreover, the job
  // has no such node, so its ticket may be that of an earlier job. Always OK without
  // CoordinatorOptions::gives_tickets.
  absl::Status CheckNodeTicket(const std::string& node, uint64_t incarnation,
                               absl::string_view ticket) PAWL_EXCLUDES(mu_);
  Ticket Goodbye(const GoodbyeRequest& request, Done<GoodbyeResponse> done) PAWL_EXCLUDES(mu_);
  // coordinator_calls.cc
  Ticket GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) PAWL_EXCLUDES(mu_);
  Ticket ConfirmRouting(const ConfirmRoutingRequest& request, Done<ConfirmRoutingResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ListTables(const ListTablesRequest& request, Done<ListTablesResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket Barrier(const BarrierRequest& request, Done<BarrierResponse> done) PAWL_EXCLUDES(mu_);
  // coordinator_workers.cc
  Ticket GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket GiveUpRanks(const GiveUpRanksRequest& request, Done<GiveUpRanksResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ReportEvaluation(const ReportEvaluationRequest& request,
                          Done<ReportEvaluationResponse> done) PAWL_EXCLUDES(mu_);
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
  Ticket ReleaseRetained(const ReleaseRetainedRequest& request, Done<ReleaseRetainedResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket ListEvents(const ListEventsRequest& request, Done<ListEventsResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket AgreeOnData(const AgreeOnDataRequest& request, Done<AgreeOnDataResponse> done)
      PAWL_EXCLUDES(mu_);
  // coordinator_end.cc
  Ticket FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done)
      PAWL_EXCLUDES(mu_);
  Ticket StopJob(const StopJobRequest& request, Done<StopJobResponse> done) PAWL_EXCLUDES(mu_);

  // The caller is gone or its deadline has passed: answers the call, if it still waits, with
  // CANCELLED or DEADLINE_EXCEEDED. A party whose deadline passes at a barrier fails the barrier.
  void Cancel(Ticket ticket, bool deadline_passed) PAWL_EXCLUDES(mu_);

  // A file of the checkpoint of that step in the job's folder is damaged: another checkpoint is
  // made there. Called once for each file. `damage` names the file and the offset.
  void OnCheckpointDamaged(uint64_t step, bool is_final, const absl::Status& damage)
      PAWL_EXCLUDES(mu_);
  // Since this Coordinator was created. GetStatusResponse.counters has them too, added to the
  // servers' files.
  CheckpointFileCounts CheckpointFiles() const PAWL_EXCLUDES(mu_);

  // Expires leases, moves replicas, makes checkpoints and repeats calls to servers.
  void Tick() PAWL_EXCLUDES(mu_);

  // The job ends as STOPPED.
  void Stop(absl::string_view reason) PAWL_EXCLUDES(mu_);
  // All nodes have heard of the job's end: the next scheduler that loads the state may start
  // another job.
  void Close() PAWL_EXCLUDES(mu_);
  // For the end of the process, after Close is saved: answers no longer wait for a save, so that
  // the server can shut down even if the store fails.
  void StopHoldingAnswers() PAWL_EXCLUDES(mu_);

  // The newest state, unless it is saved. OnStateSaved gets its change number once it is. For one
  // thread.
  std::optional<UnsavedState> TakeUnsaved() PAWL_EXCLUDES(mu_);
  void OnStateSaved(uint64_t change) PAWL_EXCLUDES(mu_);

  // COMPLETED, FAILED and STOPPED are final.
  JobState state() const PAWL_EXCLUDES(mu_);
  // The state is final and saved, and the report was written.
  bool ended() const PAWL_EXCLUDES(mu_);
  // Every node has left or died.
  bool AllNodesGone() const PAWL_EXCLUDES(mu_);

 private:
  // The part of the state that nodes receive.
  struct View {
    JobState state = STARTING;
    std::string reason;
    std::shared_ptr<const RoutingTable> routing;
  };
  // coordinator_section.h: every function that changes the state takes the lock through one of
  // these.
  class Section;
  template <typename Response>
  class Rpc;
  // Runs `actions` after the lock is released if the whole state is saved; otherwise holds them
  // until it is.
  void EndSection(DeferredActions& actions) PAWL_REQUIRES(mu_);
  View PresentView() PAWL_REQUIRES(mu_);
  // `view` is saved.
  void Publish(View view, DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator.cc: the parts of a tick.
  void ExpireLeases(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void UpdatePlacement(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckStartTimeout(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void PruneCallers(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Continues the operations that the previous scheduler of the job had in progress.
  void Resume(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_nodes.cc
  // The servers that have reported their partitions.
  std::vector<const Node*> ServersHeardFrom() const PAWL_REQUIRES(mu_);
  void MaybePlaceServers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnServerJoined(const Node& server, const RegisterRequest& request, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // A call other than a heartbeat shows that the server has adopted this routing. Ignored if no
  // such routing was ever published.
  void OnRoutingAdopted(const std::string& name, uint64_t incarnation, uint64_t epoch,
                        DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnPlacementChanged(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void MaybeStartJob() PAWL_REQUIRES(mu_);
  Ticket RegisterAs(const RegisterRequest& request, bool only_reads, Done<RegisterResponse> done)
      PAWL_EXCLUDES(mu_);
  // OK if the node may register.
  absl::Status CheckRegister(const RegisterRequest& request) PAWL_REQUIRES(mu_);
  RegisterResponse ResponseTo(const RegisterRequest& request, const Node& node, bool is_new) const
      PAWL_REQUIRES(mu_);
  // Adds the tickets, or the key, that the node needs.
  void AddTickets(const RegisterRequest& request, const Node& node, bool is_new,
                  RegisterResponse& response) const PAWL_REQUIRES(mu_);
  // `how[i]` describes how nodes[i] left. `dead`: without a goodbye.
  void OnNodesGone(const std::vector<Node>& nodes, const std::vector<std::string>& how, bool dead,
                   DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnWorkerGone(const Node& worker, const std::string& how, bool dead, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // Fails the job if `loss` says why.
  void MaybeFail(const std::optional<std::string>& loss, DeferredActions& actions)
      PAWL_REQUIRES(mu_);

  // coordinator_workers.cc
  // Assigns ranks after a change, and answers the workers.
  void PlaceRanks(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Frees those of the ranks that the worker hosts, and places them.
  void FreeRanksOf(const Node& worker, const std::vector<FreeRank>& ranks, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // Forms or ends the collective group after ranks moved or workers joined or left.
  void UpdateGroup(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Answers those calls of the worker that do not know its assignment yet.
  void AnswerAssignment(const std::string& worker, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // The next hosts of these ranks start their evaluation parts again.
  void OnRanksFreed(const std::vector<FreeRank>& ranks) PAWL_REQUIRES(mu_);
  // REQUIRES: Membership::CheckProgress is OK.
  void NoteProgress(const WorkerProgress& progress, Node& worker) PAWL_REQUIRES(mu_);
  // After a rebuild: answers the ranks whose evaluation others have passed, which would wait for
  // them.
  void SkipLostEvaluation(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Lets the ranks that have arrived evaluate once all have.
  void MaybeAnswerArrivals(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Computes the evaluation whose last part has arrived, if any.
  void MaybeEvaluate(DeferredActions& at_once) PAWL_REQUIRES(mu_);
  // All parts of an evaluation have arrived. Runs outside the lock.
  void ComputeAndJudge(const EvaluationInput& input, Loss loss) PAWL_EXCLUDES(mu_);
  void PublishEvaluation(const EvaluationResult& result, DeferredActions& actions)
      PAWL_REQUIRES(mu_);

  // coordinator_rounds.cc: calls to all servers.
  void CreateTableOnServers(uint32_t table, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Creates all tables that the servers may not have, and releases all free ranks.
  void PrepareServers(bool all_tables, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Releases the ranks, in the modes in which other ranks would wait for a rank without a host. Has
  // no effect before the servers are ready: PrepareServers then releases the free ranks.
  void ReleaseOnServers(const std::vector<FreeRank>& ranks, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void ReleaseOnServers(const FreeRank& rank, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void LoadOnServers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // The timeout of a round that reads every parameter of a server.
  MonotonicDuration ReadTimeout(MonotonicDuration least) const PAWL_REQUIRES(mu_);

  // coordinator_checkpoints.cc
  CheckpointDirector::Progress CheckpointProgress() const PAWL_REQUIRES(mu_);
  void CheckpointOnServers(const CheckpointDirector::Order& order, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // All servers have written their parts.
  void WriteCheckpoint(const CheckpointDirector::Order& order,
                       const StoredEvaluations& evaluations_before,
                       std::vector<CheckpointPart> parts, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void OnCheckpointWritten(const CheckpointDirector::Order& order,
                           const absl::StatusOr<std::string>& folder) PAWL_EXCLUDES(mu_);
  void CarryOut(const CheckpointDirector::Outcome& outcome, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void StartFromCheckpoint(const StoredRestore& restore, const SchedulerState& state)
      PAWL_REQUIRES(mu_);
  // No partition holds a change yet. The creation of a table is the first change.
  bool pristine() const PAWL_REQUIRES(mu_) {
    return !rebuilt_ &&
           (checkpoints_.restored_from().has_value() ? loading() : !tables_.HasReadyTable());
  }
  // Whether a rank has ended a step.
  bool HasTrained() const PAWL_REQUIRES(mu_);
  // The worker's process has ended. Before the first step, data that only such workers have read is
  // not agreed on any more.
  void ForgetReader(const std::string& worker) PAWL_REQUIRES(mu_);
  // The servers are loading the checkpoint that the job starts from.
  bool loading() const PAWL_REQUIRES(mu_) { return checkpoints_.loading(); }
  // The partitions are placed and hold the data that the job starts from.
  bool servers_ready() const PAWL_REQUIRES(mu_) { return director_.placed() && !loading(); }

  // coordinator_scale.cc
  // Nodes that are present and not leaving, by number.
  std::vector<const Node*> Staying(Role role) const PAWL_REQUIRES(mu_);
  void TellToLeave(const Node& node, const std::string& why, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  absl::Status CheckScale(const ScaleRequest& request) const PAWL_REQUIRES(mu_);
  absl::Status CheckDrain(const DrainRequest& request) const PAWL_REQUIRES(mu_);

  // coordinator_end.cc
  void MaybeFinish(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Executes a stage of the end.
  void Run(JobEnd::Stage stage, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void RestoreBest(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointEnd(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointEndAt(uint64_t step, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnEndCheckpointDecided(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void Inspect(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void WriteReport(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void OnReportWritten(const absl::Status& status) PAWL_EXCLUDES(mu_);
  // Ends the job as FAILED or STOPPED, unless it has ended or is about to be COMPLETED.
  void EndEarly(JobState state, absl::string_view reason, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void FailJob(absl::string_view failure, DeferredActions& actions) PAWL_REQUIRES(mu_) {
    EndEarly(FAILED, failure, actions);
  }
  // Fails the job with the error. Returns whether there is one.
  bool FailIfError(const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
    if (!status.ok()) FailJob(status.message(), actions);
    return !status.ok();
  }
  // The job has reached a final state: answers all calls and reports.
  void OnEnded(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // OK if the job has not ended and one more call may wait.
  absl::Status CheckCanWait() PAWL_REQUIRES(mu_);
  absl::StatusOr<Node*> FindWorker(const std::string& node, uint64_t incarnation)
      PAWL_REQUIRES(mu_);
  // CheckCanWait for a worker of the job.
  absl::Status CheckWorkerCanWait(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu_);
  void LogState(JobState from) PAWL_REQUIRES(mu_);

  // coordinator_state.cc: the status and the saved state.
  GetStatusResponse Status() const PAWL_REQUIRES(mu_);
  // Adds the nodes, their ranks and replicas, and the mean loss.
  void AddNodes(MonotonicTime now, GetStatusResponse& status) const PAWL_REQUIRES(mu_);
  void AddNodeStatus(const Node& node, MonotonicTime now, GetStatusResponse& status) const
      PAWL_REQUIRES(mu_);
  // Adds the ranks' samples, and sets the number of steps that all of them have done.
  void AddProgress(GetStatusResponse& status) const PAWL_REQUIRES(mu_);
  JobReport Report() const PAWL_REQUIRES(mu_);
  SchedulerState State() const PAWL_REQUIRES(mu_);
  void RestoreState(const SchedulerState& stored) PAWL_REQUIRES(mu_);
  // Returns a longer lease than the previous scheduler's only once the longer one is saved.
  std::chrono::milliseconds LeaseToGive() const PAWL_REQUIRES(mu_);

  const Options options_;
  const bool serve_only_;
  // Measures the training time only.
  const Clock& clock_;
  ServerCaller& servers_;

  // Set by the constructor. A state keeps it while the scheduler gives no tickets.
  std::string ticket_key_;
  // The data that the workers have read; unset: none has reported any.
  std::optional<StoredData> agreed_data_ PAWL_GUARDED_BY(mu_);
  mutable Mutex mu_;
  // For all timeouts.
  RunningClock running_ PAWL_GUARDED_BY(mu_);
  // start_timeout counts from here: from the construction, or from the end of loading a checkpoint.
  MonotonicTime starts_from_ PAWL_GUARDED_BY(mu_);
  MonotonicTime last_tick_ PAWL_GUARDED_BY(mu_);
  // No partition moves before this: after a restart some servers may not have reported their
  // partitions yet.
  MonotonicTime moves_from_ PAWL_GUARDED_BY(mu_);
  JobStateMachine state_ PAWL_GUARDED_BY(mu_);
  Membership membership_ PAWL_GUARDED_BY(mu_);
  EventLog events_ PAWL_GUARDED_BY(mu_);
  // The last change by which a node was told to leave.
  uint64_t leave_change_ PAWL_GUARDED_BY(mu_) = 0;
  // A change at which pristine() was false; it stays false from then on.
  std::optional<uint64_t> started_change_ PAWL_GUARDED_BY(mu_);
  // The longest lease of all schedulers of this job, and of those before this one.
  std::chrono::milliseconds longest_lease_ PAWL_GUARDED_BY(mu_){};
  std::chrono::milliseconds former_lease_ PAWL_GUARDED_BY(mu_){};
  // The change that stores longest_lease_.
  uint64_t lease_change_ PAWL_GUARDED_BY(mu_) = 0;
  // The wanted numbers of servers and workers.
  ScaleStatus scale_ PAWL_GUARDED_BY(mu_);
  ReplicaDirector director_ PAWL_GUARDED_BY(mu_);
  LogicalWorkers ranks_ PAWL_GUARDED_BY(mu_);
  TableCatalogue tables_ PAWL_GUARDED_BY(mu_);
  Barriers barriers_ PAWL_GUARDED_BY(mu_);
  Evaluations evaluations_ PAWL_GUARDED_BY(mu_);
  UserMetrics metrics_ PAWL_GUARDED_BY(mu_);
  CheckpointDirector checkpoints_ PAWL_GUARDED_BY(mu_);
  ServerRounds rounds_ PAWL_GUARDED_BY(mu_);

  // Made from the director's placement.
  RoutingTables routings_ PAWL_GUARDED_BY(mu_);
  // The director's primaries_since() that rounds_ knows.
  uint64_t targets_since_ PAWL_GUARDED_BY(mu_) = 0;
  // The next tick computes a step of the placement.
  bool replan_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime planned_ PAWL_GUARDED_BY(mu_);
  // This scheduler continues a saved state, and Resume has not run yet.
  bool resumes_ PAWL_GUARDED_BY(mu_) = false;
  // SchedulerState.rebuilt.
  bool rebuilt_ PAWL_GUARDED_BY(mu_) = false;

  SaveGate gate_ PAWL_GUARDED_BY(mu_);
  // The view that nodes have received.
  View published_ PAWL_GUARDED_BY(mu_);
  // The view of the state that TakeUnsaved returned last.
  View being_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime figures_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime callers_pruned_ PAWL_GUARDED_BY(mu_);
  bool closed_ PAWL_GUARDED_BY(mu_) = false;

  JobEnd end_ PAWL_GUARDED_BY(mu_);

  PendingRpcs pending_ PAWL_GUARDED_BY(mu_);
  GroupDirector group_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_H_
