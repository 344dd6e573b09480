// The scheduler's core: what every rpc of the Scheduler service does.
#ifndef PAWL_SCHEDULER_COORDINATOR_H_
#define PAWL_SCHEDULER_COORDINATOR_H_

#include <cassert>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/checkpoint.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/barriers.h"
#include "scheduler/checkpoints.h"
#include "scheduler/deferred_actions.h"
#include "scheduler/evaluations.h"
#include "scheduler/event_log.h"
#include "scheduler/job_state_machine.h"
#include "scheduler/logical_workers.h"
#include "scheduler/membership.h"
#include "scheduler/metrics_file.h"
#include "scheduler/parked_calls.h"
#include "scheduler/replica_director.h"
#include "scheduler/routing_history.h"
#include "scheduler/running_clock.h"
#include "scheduler/save_gate.h"
#include "scheduler/server_caller.h"
#include "scheduler/server_rounds.h"
#include "scheduler/state_saver.h"
#include "scheduler/table_catalogue.h"
#include "scheduler/worker_group.h"

namespace pawl {

// Rpcs that wait here at one time, all kinds together.
// Each node waits for routing, and each worker for its ranks besides.
inline constexpr size_t kMaxParkedCalls = 65536;
// How often the owner calls Coordinator::Tick: a death is noticed at most this long after the lease ran out.
inline constexpr std::chrono::milliseconds kTickInterval{50};
// How long servers may take, all together, with retries, once all partitions have a primary.
inline constexpr std::chrono::seconds kCreateTableTimeout{60};
inline constexpr std::chrono::seconds kReleaseTimeout{60};
// The same for what reads every parameter, with as much time besides as one server that had all of them would need at the
// rate below: after a failover one may have those of others too, and what a server last said that it has may be old. No
// server should be so slow, though it looks up every key.
inline constexpr std::chrono::seconds kKeepBestTimeout{60};
inline constexpr std::chrono::seconds kInspectTimeout{300};
inline constexpr uint64_t kLeastBytesPerSecondRead = 50'000'000;
// Until the step is reached, all of it is written, and anybody who was away is back.
inline constexpr std::chrono::seconds kCheckpointTimeout{3600};
// The job's end waits for its checkpoint so long, repeats included; then it ends without one, and says so.
inline constexpr std::chrono::seconds kEndCheckpointTimeout{1800};
// Before another attempt: where partitions moved or somebody was busy, and after an error, when all of it is written again.
inline constexpr std::chrono::seconds kEndCheckpointPause{1};
inline constexpr std::chrono::seconds kEndCheckpointErrorPause{10};
inline constexpr std::chrono::seconds kLoadTimeout{3600};
// Of one question of these: a server that does not answer is asked again, and must not take it for given up.
inline constexpr std::chrono::seconds kCheckpointCallTimeout{30};
// Figures of the nodes, which change all the time, are saved so often.
inline constexpr std::chrono::seconds kFiguresSaveInterval{10};
// What is kept to call servers that have gone goes so often.
inline constexpr std::chrono::seconds kPruneInterval{10};

// The placement is looked at so often though nothing has happened: partitions may have become hot.
inline constexpr std::chrono::seconds kReplanInterval{1};

// Adds up the servers' figures.
void AddCounters(const ServerCounters& from, ServerCounters& to);

// A pause of less is none: the owner's thread may come late.
inline constexpr std::chrono::milliseconds kShortestPause{200};

// Decides everything the scheduler decides and knows neither gRPC nor files nor threads: requests, time and servers'
// answers come in, answers and calls go out. Rpcs that wait are kept as callbacks; nothing polls and nothing blocks.
// Thread-safe. Callbacks run on the thread that brought about their answer, outside the lock; they may
// call the Coordinator again, and must not block. The owner calls Tick every kTickInterval.
//
// Invariants:
//  1. Every `done` runs exactly once: with its answer, or by Cancel, or when the job is over.
//  2. The job ends once: COMPLETED only after the report has been written, FAILED naming who or what did it.
//  3. A life whose lease has run out gets ABORTED, for good.
//  4. With Options::state_changed, nothing is told to anybody, by whatever rpc or call, before the state that it
//     comes from is saved.
//  5. Nobody is late for a time in which this process did not run.
class Coordinator {
 public:
  struct Options {
    // Valid, with its defaults filled in.
    Job job;
    uint64_t job_id = 0;
    // Servers and workers that the job begins with; others may come. REQUIRES: job.replicas <= servers.
    uint32_t servers = 1;
    uint32_t workers = 0;
    std::chrono::milliseconds heartbeat_interval{200};
    // A node that was silent for longer is dead. Several intervals, so that one lost heartbeat is none.
    std::chrono::milliseconds lease{1000};
    // After a restart nobody is dead before this and a lease have passed. Nodes try once a second to reach a scheduler
    // that is away.
    std::chrono::milliseconds restart_grace{2000};
    // A server that adopts none of the newer routings for so long, though it sends heartbeats, is treated as gone. Longer
    // than it takes to ask again for a routing whose answer was lost.
    std::chrono::milliseconds adoption_timeout{30000};
    // The job fails if its first nodes are not there by then.
    std::chrono::milliseconds start_timeout{300000};
    // The ranks of a worker that has died are kept for it so long, so that whoever starts it again comes first; then
    // others that live take them over.
    std::chrono::milliseconds worker_takeover_grace{1000};
    // The job fails if nobody takes over the ranks of a worker that has gone for so long.
    std::chrono::milliseconds worker_return_timeout{60000};
    // The job fails if a partition is without its last holder for so long.
    std::chrono::milliseconds recovery_timeout{60000};
    // Called once, at the job's end, outside the lock. An error fails a job that would have completed. May be null.
    std::function<absl::Status(const JobReport&)> write_report;
    // Completes a checkpoint in `dir` of which all parts are there, deletes old ones if `keep` is not 0, and then calls
    // `done` with its own folder, on any thread. Called outside the lock; must not block. Null: there are no checkpoints.
    std::function<void(const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                       absl::AnyInvocable<void(absl::StatusOr<std::string>)> done)>
        write_checkpoint;
    // The checkpoint to begin with, which is whole and fits the job, and what its manifest has as scheduler_state. Not
    // looked at if the job goes on from a saved state.
    std::optional<StoredRestore> restore;
    SchedulerState restore_state;
    // Called under the lock whenever there is something to save, with TakeUnsaved and StateIsSaved; must not call
    // back or block. Null: nothing is ever saved.
    std::function<void()> state_changed;
    // False once another scheduler may direct the job: no lease is renewed then. Called under the lock; null: true.
    std::function<bool()> leads;
    // The wall clock, only for how long the training took over restarts. Null: that counts anew with each.
    std::function<uint64_t()> unix_ms;
  };

  // `clock` and `servers` outlive the Coordinator; callbacks of `servers` must not run after its destruction. With
  // `saved`, which must be of the same job, it goes on where that was saved.
  Coordinator(Options options, const Clock& clock, ServerCaller& servers, const SchedulerState* saved = nullptr);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // What is told at once, as far as it is saved; proto/scheduler.proto says what each does.
  absl::StatusOr<HeartbeatResponse> Heartbeat(const HeartbeatRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<GetStatusResponse> GetStatus(const GetStatusRequest& request) PAWL_EXCLUDES(mu_);
  // EventLog::counts.
  std::map<EventKind, uint64_t> EventCounts() const PAWL_EXCLUDES(mu_);

  // Rpcs that may wait; some only until what they have changed is saved, those cannot be cancelled and have ticket 0.
  // `done` may run before they return.
  Ticket Register(const RegisterRequest& request, Done<RegisterResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ListTables(const ListTablesRequest& request, Done<ListTablesResponse> done) PAWL_EXCLUDES(mu_);
  Ticket FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done) PAWL_EXCLUDES(mu_);
  Ticket StopJob(const StopJobRequest& request, Done<StopJobResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Goodbye(const GoodbyeRequest& request, Done<GoodbyeResponse> done) PAWL_EXCLUDES(mu_);
  Ticket GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) PAWL_EXCLUDES(mu_);
  Ticket CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Barrier(const BarrierRequest& request, Done<BarrierResponse> done) PAWL_EXCLUDES(mu_);
  Ticket GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done) PAWL_EXCLUDES(mu_);
  Ticket GiveUpRanks(const GiveUpRanksRequest& request, Done<GiveUpRanksResponse> done) PAWL_EXCLUDES(mu_);
  Ticket JoinGroup(const JoinGroupRequest& request, Done<JoinGroupResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ExchangeInGroup(const ExchangeInGroupRequest& request, Done<ExchangeInGroupResponse> done) PAWL_EXCLUDES(mu_);
  Ticket WatchGroup(const WatchGroupRequest& request, Done<WatchGroupResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ReportEvaluation(const ReportEvaluationRequest& request, Done<ReportEvaluationResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Checkpoint(const CheckpointRequest& request, Done<CheckpointResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Scale(const ScaleRequest& request, Done<ScaleResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Drain(const DrainRequest& request, Done<DrainResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ListEvents(const ListEventsRequest& request, Done<ListEventsResponse> done) PAWL_EXCLUDES(mu_);
  // The caller is gone or its deadline has passed: answers the call, if it still waits, with CANCELLED or
  // DEADLINE_EXCEEDED. A party whose deadline passes at a barrier fails the barrier.
  void Cancel(Ticket ticket, bool deadline_passed) PAWL_EXCLUDES(mu_);

  // Looks for leases that have run out, moves replicas, and asks servers again.
  void Tick() PAWL_EXCLUDES(mu_);

  // The job ends as STOPPED.
  void Stop(absl::string_view reason) PAWL_EXCLUDES(mu_);

  // Everybody has heard of the job's end: whoever finds this state begins another job.
  void Close() PAWL_EXCLUDES(mu_);

  // The newest state, if it is not saved yet. Its change goes to StateIsSaved once it is. For one thread.
  std::optional<UnsavedState> TakeUnsaved() PAWL_EXCLUDES(mu_);
  void StateIsSaved(uint64_t change) PAWL_EXCLUDES(mu_);

  // COMPLETED, FAILED and STOPPED are final.
  JobState state() const PAWL_EXCLUDES(mu_);
  // The state is final and saved, and the report has been written.
  bool over() const PAWL_EXCLUDES(mu_);
  // Every node has said good-bye or has died.
  bool AllNodesGone() const PAWL_EXCLUDES(mu_);

 private:
  struct BarrierParty {
    std::string barrier;
    uint32_t party = 0;
  };
  struct RoutingWanted {
    uint64_t newer_than = 0;
    // The caller has the table of that epoch.
    bool accepts_changes = false;
    bool operator==(const RoutingWanted&) const = default;
  };
  struct AssignmentWanted {
    std::string worker;
    uint64_t newer_than = 0;
  };
  struct GroupExchange {
    uint64_t generation = 0;
    std::string name;
  };
  // What nodes have been told, or may be.
  struct View {
    JobState state = STARTING;
    std::string reason;
    std::shared_ptr<const RoutingTable> routing;
  };
  // Has the lock while it is there. At its end EndSection is called, and once the lock is released the actions run that may.
  class PAWL_THREAD_ANNOTATION(scoped_lockable) Section {
   public:
    explicit Section(Coordinator& coordinator) PAWL_ACQUIRE(coordinator.mu_) PAWL_NO_THREAD_SAFETY_ANALYSIS
        : coordinator_(coordinator),
          lock_(coordinator.mu_) {}
    ~Section() PAWL_RELEASE() PAWL_NO_THREAD_SAFETY_ANALYSIS { coordinator_.EndSection(actions_); }

    DeferredActions& actions() { return actions_; }

   private:
    Coordinator& coordinator_;
    DeferredActions actions_;
    const MutexLock lock_;
  };

  // The Section in which an rpc is taken: the call is answered, or waits, once. One is refused, and answered by that, if the
  // store has been failing for so long that no more answers can be held.
  template <typename Response>
  class PAWL_THREAD_ANNOTATION(scoped_lockable) Rpc {
   public:
    Rpc(Coordinator& coordinator, Done<Response> done) PAWL_ACQUIRE(coordinator.mu_) PAWL_NO_THREAD_SAFETY_ANALYSIS
        : coordinator_(coordinator),
          done_(std::move(done)),
          section_(coordinator) {
      if (coordinator.gate_.held() < kMaxParkedCalls) return;
      at_once_.Add([refused = Take()]() mutable {
        refused(absl::ResourceExhaustedError(
            absl::StrCat(kMaxParkedCalls, " answers wait until the scheduler's state is saved, the limit")));
      });
    }
    ~Rpc() PAWL_RELEASE() PAWL_NO_THREAD_SAFETY_ANALYSIS { assert(done_ == nullptr); }

    bool refused() const { return done_ == nullptr; }
    DeferredActions& actions() { return section_.actions(); }
    // What need not wait until anything is saved.
    DeferredActions& at_once() { return at_once_; }
    // With the other actions. Returns the ticket of a call that does not wait.
    Ticket Answer(absl::StatusOr<Response> answer) {
      actions().Add([done = Take(), answer = std::move(answer)]() mutable { done(std::move(answer)); });
      return 0;
    }
    // For an answer that is not to wait with the other actions.
    Done<Response> Take() {
      assert(done_ != nullptr);
      return std::exchange(done_, nullptr);
    }
    // REQUIRES: CheckCanWait has found that it can.
    template <typename Key>
    Ticket Park(ParkedCalls<Key, Response>& calls, std::type_identity_t<Key> key) PAWL_NO_THREAD_SAFETY_ANALYSIS {
      const Ticket ticket = ++coordinator_.last_ticket_;
      calls.Park(ticket, std::move(key), Take());
      return ticket;
    }

   private:
    Coordinator& coordinator_;
    Done<Response> done_;
    // Run once the lock is released.
    DeferredActions at_once_;
    Section section_;
  };

  // Lets `actions` go if all is saved; else they wait for it.
  void EndSection(DeferredActions& actions) PAWL_REQUIRES(mu_);
  View PresentView() PAWL_REQUIRES(mu_);
  // What has been told, to who asks for it. REQUIRES: that is newer.
  std::shared_ptr<const RoutingTable> ToldRouting(const RoutingWanted& wanted) const PAWL_REQUIRES(mu_);
  // `view` is saved.
  void Publish(View view, DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_nodes.cc: what follows when something has changed.
  // Those that would come back under their own names.
  std::vector<const Node*> ServersHeardOf() const PAWL_REQUIRES(mu_);
  void PlaceIfServersAreThere(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // A server that asks for newer routing acts by what it has: nobody need wait for its heartbeat.
  void HasAdopted(const GetRoutingRequest& request, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void PlacementHasChanged(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // routing_ is of the director's present epoch from here on.
  void MakeRouting() PAWL_REQUIRES(mu_);
  // Something has changed that ranks depend on: gives them out anew and tells the workers.
  void PlaceRanksOnWorkers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // What their hosts had begun at the scheduler others begin anew.
  void RanksAreFree(const std::vector<LogicalWorkers::FreeRank>& ranks) PAWL_REQUIRES(mu_);
  void StartIfAllAreThere() PAWL_REQUIRES(mu_);
  // `how[i]` says how nodes[i] went. dead: nobody asked for it.
  void NodesAreGone(const std::vector<Node>& nodes, const std::vector<std::string>& how, bool dead, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void WorkerIsGone(const Node& worker, const std::string& how, bool dead, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // After a restart, once there is time to act.
  void TakeUpWhatWasUnderWay(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_calls.cc.
  // To those of the worker's calls that do not know it yet.
  void AnswerAssignment(const std::string& worker, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // REQUIRES: Membership::CheckProgress has found it possible.
  void NoteProgress(const WorkerProgress& progress, Node& worker) PAWL_REQUIRES(mu_);

  // coordinator_group.cc.
  WorkerGroup::Hosts HostsOfRanks() const PAWL_REQUIRES(mu_);
  // Ranks may have other hosts, or workers be gone: ends the group, or forms one, and answers those who wait for it.
  void UpdateGroup(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // If it is one that waits to join.
  bool CancelJoin(Ticket ticket, const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_);

  // coordinator_rounds.cc: what is asked of servers.
  template <typename Request, typename CallDone>
  using CallOf =
      std::type_identity_t<void (ServerCaller::*)(const std::string& address, const Request&, MonotonicDuration, CallDone)>;
  // Asks the primaries of all partitions, in a round (scheduler/server_rounds.h). `done` runs under the lock.
  template <typename Request>
  void AskServers(std::string what, MonotonicDuration timeout, const Request& request,
                  CallOf<Request, ServerCaller::Done> call, ServerRounds::RoundDone done, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // The same where the answers say something. A server that has not answered after `call_timeout` is asked again.
  template <typename Answer>
  using Gathered = std::function<void(absl::StatusOr<std::vector<Answer>>, DeferredActions&)>;
  template <typename Answer, typename Request>
  void Gather(std::string what, MonotonicDuration timeout, MonotonicDuration call_timeout, const Request& request,
              CallOf<Request, absl::AnyInvocable<void(absl::StatusOr<Answer>)>> call, Gathered<Answer> done,
              DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CreateTableOnServers(uint32_t table, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Those of the ranks that are free hold nobody back any more, in the modes in which they would. Without effect before the
  // servers are ready: what is free then is released when they are.
  void ReleaseOnServers(const std::vector<LogicalWorkers::FreeRank>& ranks, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ReleaseOnServers(const LogicalWorkers::FreeRank& rank, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // The last part of an evaluation is there; runs outside the lock.
  void EvaluationIsComplete(const EvaluationInput& input) PAWL_EXCLUDES(mu_);
  void PublishEvaluation(const EvaluationResult& result, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // For what reads every parameter of a server.
  MonotonicDuration TimeToRead(MonotonicDuration least) const PAWL_REQUIRES(mu_);
  // coordinator_checkpoints.cc.
  void BeginCheckpointIfDue(MonotonicTime now, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointOnServers(const Checkpoints::Order& order, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // All servers have written their parts.
  void WriteCheckpoint(const Checkpoints::Order& order, const StoredEvaluations& evaluations_before,
                       std::vector<CheckpointPart> parts, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void CheckpointIsWritten(const Checkpoints::Order& order, const absl::StatusOr<std::string>& folder) PAWL_EXCLUDES(mu_);
  void CheckpointHasFailed(const Checkpoints::Order& order, const absl::Status& status, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  // Those that a job which is restored from the end does not make again.
  StoredEvaluations EvaluationsBeforeEnd() const PAWL_REQUIRES(mu_);
  // What a job that is restored from that checkpoint goes on with.
  SchedulerState StateAt(const Checkpoints::Order& order, const StoredEvaluations& evaluations_before) const
      PAWL_REQUIRES(mu_);
  void BeginWith(const StoredRestore& restore, const SchedulerState& state) PAWL_REQUIRES(mu_);
  // The job is restored, and the servers have not loaded all of it yet: nobody else may use them.
  bool loading() const PAWL_REQUIRES(mu_) { return restore_.has_value() && !restore_->loaded(); }
  void LoadOnServers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  // No partition needs to have had a change yet: the creation of a table is the first one that must be in all of them.
  bool nothing_yet() const PAWL_REQUIRES(mu_) { return restore_.has_value() ? loading() : !tables_.AnyIsReady(); }
  // The servers are placed, and have what the job begins with.
  bool servers_are_ready() const PAWL_REQUIRES(mu_) { return director_.placed() && !loading(); }

  // coordinator_scale.cc.
  // Nodes that are there and not on their way out, by number.
  std::vector<const Node*> Staying(Role role) const PAWL_REQUIRES(mu_);
  void TellToLeave(const Node& node, const std::string& why, DeferredActions& actions) PAWL_REQUIRES(mu_);
  absl::Status CheckScale(const ScaleRequest& request) const PAWL_REQUIRES(mu_);
  absl::Status CheckDrain(const DrainRequest& request) const PAWL_REQUIRES(mu_);

  // coordinator_end.cc. A job that has been trained goes through these stages, in this order. They are not saved: a
  // scheduler that goes on there begins with the first one, since all that is asked of servers may be asked again.
  enum class EndStage {
    kNone,
    kRestoringBest,
    // Before the digest, which can be had from the checkpoint: the model can be had from nothing else if the digest fails.
    // Both are of the same parameters if no client pushes any more. What one pushes now is in some parts of the checkpoint
    // and not in others (a server takes its partitions one after the other), and all of it may be in the digest.
    kCheckpointing,
    kInspecting,
    // The result is there and being written: nothing can fail the job but the writing. Also of a job that has come to
    // another end.
    kReporting,
    kReported,
  };
  struct End {
    EndStage stage = EndStage::kNone;
    // kCheckpointing: until when it is tried, when it is tried again if no attempt is under way, and why the last one came
    // to nothing.
    MonotonicTime checkpoint_until;
    std::optional<MonotonicTime> checkpoint_again_at;
    absl::Status checkpoint_error;
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
  void EndCheckpointHasFailed(const Checkpoints::Order& order, const absl::Status& status, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
  void GiveUpEndCheckpoint(const Checkpoints::Order& order, const absl::Status& status, DeferredActions& actions)
      PAWL_REQUIRES(mu_);
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
  absl::StatusOr<Node*> FindWorker(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu_);
  // Both: the job goes on, and a worker that is a node of it may wait.
  absl::Status CheckWorkerCanWait(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu_);
  void LogState(absl::string_view from) PAWL_REQUIRES(mu_);

  // coordinator_state.cc: what is shown and what is saved.
  GetStatusResponse Status() const PAWL_REQUIRES(mu_);
  JobReport Report() const PAWL_REQUIRES(mu_);
  SchedulerState State() const PAWL_REQUIRES(mu_);
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
  Ticket last_ticket_ PAWL_GUARDED_BY(mu_) = 0;
  JobStateMachine state_ PAWL_GUARDED_BY(mu_);
  Membership membership_ PAWL_GUARDED_BY(mu_);
  EventLog events_ PAWL_GUARDED_BY(mu_);
  // The last change by which a node was told to leave.
  uint64_t leave_change_ PAWL_GUARDED_BY(mu_) = 0;
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
  // The checkpoint that the job has begun with.
  std::optional<StoredRestore> restore_ PAWL_GUARDED_BY(mu_);
  ServerRounds rounds_ PAWL_GUARDED_BY(mu_);

  // Null before the first placement. It is made only when somebody looks at it: until a state is saved many learners may
  // catch up.
  std::shared_ptr<const RoutingTable> routing_ PAWL_GUARDED_BY(mu_);
  bool routing_is_behind_ PAWL_GUARDED_BY(mu_) = false;
  // Up to routing_.
  RoutingHistory routing_history_ PAWL_GUARDED_BY(mu_);
  // routing_ was made anew after a restart, maybe by another version: it is no base of changes.
  bool routing_is_remade_ PAWL_GUARDED_BY(mu_) = false;
  // The director's primaries_since() that rounds_ knows.
  uint64_t targets_since_ PAWL_GUARDED_BY(mu_) = 0;
  // Something has happened after which there may be a step of the placement to do; or time has passed.
  bool replan_ PAWL_GUARDED_BY(mu_) = false;
  MonotonicTime planned_ PAWL_GUARDED_BY(mu_);
  // From a saved state, and has not taken up yet what was under way then.
  bool goes_on_ PAWL_GUARDED_BY(mu_) = false;

  SaveGate gate_ PAWL_GUARDED_BY(mu_);
  View told_ PAWL_GUARDED_BY(mu_);
  // What TakeUnsaved has given away.
  View being_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime figures_saved_ PAWL_GUARDED_BY(mu_);
  MonotonicTime callers_pruned_ PAWL_GUARDED_BY(mu_);
  bool closed_ PAWL_GUARDED_BY(mu_) = false;

  End end_ PAWL_GUARDED_BY(mu_);

  ParkedCalls<RoutingWanted, RoutingTable> routing_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the table's id.
  ParkedCalls<uint32_t, CreateTableResponse> table_calls_ PAWL_GUARDED_BY(mu_);
  ParkedCalls<BarrierParty, BarrierResponse> barrier_calls_ PAWL_GUARDED_BY(mu_);
  ParkedCalls<AssignmentWanted, GetAssignmentResponse> assignment_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the node.
  ParkedCalls<std::string, JoinGroupResponse> join_group_calls_ PAWL_GUARDED_BY(mu_);
  ParkedCalls<GroupExchange, ExchangeInGroupResponse> exchange_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the generation.
  ParkedCalls<uint64_t, WatchGroupResponse> watch_group_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the evaluation's number.
  ParkedCalls<uint64_t, ReportEvaluationResponse> evaluation_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the folder.
  ParkedCalls<std::string, CheckpointResponse> checkpoint_calls_ PAWL_GUARDED_BY(mu_);

  // `visit` gets the parked calls of each rpc. One that were missing here would wait for ever at the job's end.
  template <typename Visit>
  void ForEachParked(Visit visit) PAWL_REQUIRES(mu_) {
    std::apply([&](auto&... calls) { (visit(calls), ...); },
               std::tie(routing_calls_, table_calls_, barrier_calls_, assignment_calls_, join_group_calls_, exchange_calls_,
                        watch_group_calls_, evaluation_calls_, checkpoint_calls_));
  }
};

template <typename Request>
void Coordinator::AskServers(std::string what, MonotonicDuration timeout, const Request& request,
                             CallOf<Request, ServerCaller::Done> call, ServerRounds::RoundDone done,
                             DeferredActions& actions) {
  const auto ask = [this, request, call](const ServerRounds::Question& question) {
    Request asked = request;
    asked.set_routing_epoch(question.epoch);
    (servers_.*call)(question.address, asked, question.timeout, [this, question](const absl::Status& status) {
      Section section(*this);
      rounds_.Answer(question.attempt, question.server, status, section.actions());
    });
  };
  rounds_.Start(std::move(what), running_.Now(), timeout, ask, std::move(done), actions);
}

template <typename Answer, typename Request>
void Coordinator::Gather(std::string what, MonotonicDuration timeout, MonotonicDuration call_timeout, const Request& request,
                         CallOf<Request, absl::AnyInvocable<void(absl::StatusOr<Answer>)>> call, Gathered<Answer> done,
                         DeferredActions& actions) {
  // Of the newest attempt, by server; changed under the lock.
  struct Answers {
    uint64_t attempt = 0;
    std::map<size_t, Answer> by_server;
  };
  auto answers = std::make_shared<Answers>();
  const auto ask = [this, request, call, call_timeout, answers](const ServerRounds::Question& question) {
    Request asked = request;
    asked.set_routing_epoch(question.epoch);
    (servers_.*call)(question.address, asked, std::min(question.timeout, call_timeout),
                     [this, question, answers](absl::StatusOr<Answer> answer) {
                       Section section(*this);
                       if (!rounds_.Awaits(question.attempt, question.server)) return;
                       const absl::Status status = answer.status();
                       if (answers->attempt != question.attempt) *answers = {question.attempt, {}};
                       if (status.ok()) answers->by_server[question.server] = *std::move(answer);
                       rounds_.Answer(question.attempt, question.server, status, section.actions());
                     });
  };
  rounds_.Start(
      std::move(what), running_.Now(), timeout, ask,
      [answers, done = std::move(done)](const absl::Status& status, DeferredActions& actions) mutable {
        std::vector<Answer> all;
        for (auto& [server, answer] : answers->by_server) all.push_back(std::move(answer));
        done(status.ok() ? absl::StatusOr<std::vector<Answer>>(std::move(all)) : status, actions);
      },
      actions);
}

}  // namespace pawl

#endif  // PAWL_SCHEDULER_COORDINATOR_H_
