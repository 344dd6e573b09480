// The scheduler's core: what every rpc of the Scheduler service does.
#ifndef PAWL_SCHEDULER_COORDINATOR_H_
#define PAWL_SCHEDULER_COORDINATOR_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "scheduler/barriers.h"
#include "scheduler/deferred_actions.h"
#include "scheduler/early_stopping_policy.h"
#include "scheduler/evaluation_collector.h"
#include "scheduler/job_state_machine.h"
#include "scheduler/logical_workers.h"
#include "scheduler/membership.h"
#include "scheduler/metrics_file.h"
#include "scheduler/parked_calls.h"
#include "scheduler/routing.h"
#include "scheduler/server_caller.h"
#include "scheduler/server_rounds.h"
#include "scheduler/table_catalogue.h"

namespace pawl {

// Rpcs that wait here at one time, all kinds together.
inline constexpr size_t kMaxParkedCalls = 16384;
// Evaluations that are still shown; the oldest are forgotten.
inline constexpr size_t kMaxEvaluationsKept = 4096;
// How often the owner calls Coordinator::Tick: a death is noticed at most this long after the lease ran out.
inline constexpr std::chrono::milliseconds kTickInterval{50};
// How long servers may take, all together, with retries.
inline constexpr std::chrono::seconds kCreateTableTimeout{20};
inline constexpr std::chrono::seconds kKeepBestTimeout{60};
// Reads every parameter.
inline constexpr std::chrono::seconds kInspectTimeout{300};

// Decides everything the scheduler decides and knows neither gRPC nor files nor threads: requests, time and servers'
// answers come in, answers and calls go out. Rpcs that wait are kept as callbacks; nothing polls and nothing blocks.
// Thread-safe. Callbacks run on the thread that brought about their answer, outside the lock; they may
// call the Coordinator again, and must not block. The owner calls Tick every kTickInterval.
//
// Invariants:
//  1. Every `done` runs exactly once: with its answer, or by Cancel, or when the job is over.
//  2. The job ends once: COMPLETED only after the report has been written, FAILED naming who or what did it.
//  3. A node whose lease has run out gets ABORTED, for good.
class Coordinator {
 public:
  struct Options {
    // Valid, with its defaults filled in.
    Job job;
    uint64_t job_id = 0;
    // Servers and workers that the job begins with.
    uint32_t servers = 1;
    uint32_t workers = 0;
    std::chrono::milliseconds heartbeat_interval{200};
    // A node that was silent for longer is dead. Several intervals, so that one lost heartbeat is none.
    std::chrono::milliseconds lease{1000};
    // The job fails if its first nodes are not there by then.
    std::chrono::milliseconds start_timeout{300000};
    // Called once, at the job's end, outside the lock. An error fails a job that would have completed. May be null.
    std::function<absl::Status(const JobReport&)> write_report;
  };

  // `clock` and `servers` outlive the Coordinator; callbacks of `servers` must not run after its destruction.
  Coordinator(Options options, const Clock& clock, ServerCaller& servers);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Rpcs that answer at once; proto/scheduler.proto says what each does.
  absl::StatusOr<RegisterResponse> Register(const RegisterRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<HeartbeatResponse> Heartbeat(const HeartbeatRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<ListTablesResponse> ListTables(const ListTablesRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<FinishWorkResponse> FinishWork(const FinishWorkRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<GetStatusResponse> GetStatus(const GetStatusRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<StopJobResponse> StopJob(const StopJobRequest& request) PAWL_EXCLUDES(mu_);
  absl::StatusOr<GoodbyeResponse> Goodbye(const GoodbyeRequest& request) PAWL_EXCLUDES(mu_);

  // Rpcs that may wait. `done` may run before they return.
  Ticket GetRouting(const GetRoutingRequest& request, Done<RoutingTable> done) PAWL_EXCLUDES(mu_);
  Ticket CreateTable(const CreateTableRequest& request, Done<CreateTableResponse> done) PAWL_EXCLUDES(mu_);
  Ticket Barrier(const BarrierRequest& request, Done<BarrierResponse> done) PAWL_EXCLUDES(mu_);
  Ticket GetAssignment(const GetAssignmentRequest& request, Done<GetAssignmentResponse> done) PAWL_EXCLUDES(mu_);
  Ticket ReportEvaluation(const ReportEvaluationRequest& request, Done<ReportEvaluationResponse> done)
      PAWL_EXCLUDES(mu_);
  // The caller is gone or its deadline has passed: answers the call, if it still waits, with CANCELLED or
  // DEADLINE_EXCEEDED. A party whose deadline passes at a barrier fails the barrier.
  void Cancel(Ticket ticket, bool deadline_passed) PAWL_EXCLUDES(mu_);

  // Looks for leases that have run out and asks servers again.
  void Tick() PAWL_EXCLUDES(mu_);

  // The job ends as STOPPED.
  void Stop(absl::string_view reason) PAWL_EXCLUDES(mu_);

  // COMPLETED, FAILED and STOPPED are final.
  JobState state() const PAWL_EXCLUDES(mu_);
  // The state is final, and the report has been written.
  bool over() const PAWL_EXCLUDES(mu_);
  // Every node has said good-bye or has died.
  bool AllNodesGone() const PAWL_EXCLUDES(mu_);

 private:
  struct BarrierParty {
    std::string barrier;
    uint32_t party = 0;
  };

  // Something has changed: what follows from it.
  void PublishRoutingIfServersAreThere(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void AnswerAssignments(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void StartIfAllAreThere() PAWL_REQUIRES(mu_);
  void FinishIfAllWorkIsDone(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void NodeIsGone(const Node& node, absl::string_view how, bool dead, DeferredActions& actions) PAWL_REQUIRES(mu_);

  void CreateTableOnServers(uint32_t table, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // The last part of an evaluation is there; runs outside the lock.
  void EvaluationIsComplete(const EvaluationInput& input) PAWL_EXCLUDES(mu_);
  void PublishEvaluation(const EvaluationResult& result, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void InspectServers(DeferredActions& actions) PAWL_REQUIRES(mu_);
  void GatherResult(const std::vector<InspectResponse>& answers, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void ReportIsWritten(const absl::Status& status) PAWL_EXCLUDES(mu_);

  void FailJob(const std::string& failure, DeferredActions& actions) PAWL_REQUIRES(mu_);
  void StopJobFor(const std::string& reason, DeferredActions& actions) PAWL_REQUIRES(mu_);
  // Answers everybody who waits; to be called once the job is over.
  void EndEverything(DeferredActions& actions) PAWL_REQUIRES(mu_);

  // OK if the job goes on and one more call may wait.
  absl::Status CheckCanWait() const PAWL_REQUIRES(mu_);
  absl::StatusOr<Node*> FindWorker(const std::string& node, uint64_t incarnation) PAWL_REQUIRES(mu_);
  void StartRound(std::string what, MonotonicDuration timeout,
                  std::function<void(const std::string& address, MonotonicDuration, ServerCaller::Done)> call,
                  ServerRounds::RoundDone done, DeferredActions& actions) PAWL_REQUIRES(mu_);
  ServerRounds::Ask AskBy(
      std::function<void(size_t server, const std::string& address, MonotonicDuration, ServerCaller::Done)> call)
      PAWL_REQUIRES(mu_);
  void LogState(absl::string_view from) const PAWL_REQUIRES(mu_);
  GetStatusResponse Status() const PAWL_REQUIRES(mu_);
  JobReport Report() const PAWL_REQUIRES(mu_);

  const Options options_;
  const bool serve_only_;
  const bool early_stopping_;
  const Clock& clock_;
  ServerCaller& servers_;
  const MonotonicTime created_;

  mutable Mutex mu_;
  Ticket last_ticket_ PAWL_GUARDED_BY(mu_) = 0;
  MonotonicTime last_tick_ PAWL_GUARDED_BY(mu_);
  JobStateMachine state_ PAWL_GUARDED_BY(mu_);
  Membership membership_ PAWL_GUARDED_BY(mu_);
  Routing routing_ PAWL_GUARDED_BY(mu_);
  LogicalWorkers logical_workers_ PAWL_GUARDED_BY(mu_);
  // Whose host has reported FinishWork, by rank.
  std::vector<bool> finished_ranks_ PAWL_GUARDED_BY(mu_);
  TableCatalogue tables_ PAWL_GUARDED_BY(mu_);
  Barriers barriers_ PAWL_GUARDED_BY(mu_);
  ServerRounds rounds_ PAWL_GUARDED_BY(mu_);

  EvaluationCollector collector_ PAWL_GUARDED_BY(mu_);
  EarlyStoppingPolicy early_stopping_policy_ PAWL_GUARDED_BY(mu_);
  // The evaluation whose parts are all there and whose result is not out yet; 0: none.
  uint64_t evaluation_in_work_ PAWL_GUARDED_BY(mu_) = 0;
  std::deque<EvaluationResult> evaluations_ PAWL_GUARDED_BY(mu_);
  bool stop_training_ PAWL_GUARDED_BY(mu_) = false;
  // Servers hold weights kept by KeepBest.
  bool best_is_kept_ PAWL_GUARDED_BY(mu_) = false;

  // The result has been gathered and is being written: nothing can fail the job but the writing.
  bool settled_ PAWL_GUARDED_BY(mu_) = false;
  bool report_is_written_ PAWL_GUARDED_BY(mu_) = false;
  std::optional<uint32_t> digest_ PAWL_GUARDED_BY(mu_);
  std::optional<ServerCounters> final_counters_ PAWL_GUARDED_BY(mu_);

  // Keyed by the epoch that the caller knows.
  ParkedCalls<uint64_t, RoutingTable> routing_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the table's id.
  ParkedCalls<uint32_t, CreateTableResponse> table_calls_ PAWL_GUARDED_BY(mu_);
  ParkedCalls<BarrierParty, BarrierResponse> barrier_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the worker's name.
  ParkedCalls<std::string, GetAssignmentResponse> assignment_calls_ PAWL_GUARDED_BY(mu_);
  // Keyed by the evaluation's number.
  ParkedCalls<uint64_t, ReportEvaluationResponse> evaluation_calls_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_COORDINATOR_H_
