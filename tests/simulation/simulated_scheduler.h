// The scheduler of a job as a simulated process, with its store.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "proto/checkpoint.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/simulated_network.h"

namespace pawl {

class DataPlane;
class FaultEnv;

inline constexpr char kSchedulerAddress[] = "scheduler:7000";
inline constexpr int kSchedulerSite = 0;

struct ClusterOptions {
  Job job;
  int servers = 1;
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds lease{1000};
  // See SimulatedLog.
  bool disks_forget = false;
  // Lease clocks drift.
  bool clocks_drift = false;
  // Leases use a clock that stops while a machine is suspended.
  bool leases_stand_still = false;
  // A restarted scheduler does not know the lease durations of its predecessor.
  bool scheduler_forgets_leases = false;
  // Limits the backlog of learners and slows snapshots.
  bool small_backlogs = false;
  // The scheduler is about to ask the servers to release the rank.
  std::function<void(uint32_t rank, uint64_t incarnation)> releasing = [](uint32_t, uint64_t) {};
  // The file system of the checkpoints; null: none are made.
  FaultEnv* files = nullptr;
  // The scheduler asks the servers for their parts of a checkpoint; it has completed one.
  std::function<void(uint64_t step, bool is_final)> checkpoint_begins = [](uint64_t, bool) {};
  std::function<void(const CheckpointManifest& manifest)> checkpoint_completed =
      [](const CheckpointManifest&) {};
  // A server has answered the scheduler's question for its result by this epoch.
  std::function<void(uint64_t epoch, DataPlane& plane)> inspected = [](uint64_t, DataPlane&) {};
};

// Per machine. Keeps both ends of a lease within kLeaseDriftDivisor.
inline constexpr int kMaxDrift = 4000;
std::unique_ptr<MachineClock> DrawClock(const EventLoop& loop, SeededRandom& random,
                                        const ClusterOptions& options);

// A scheduler that has lost its state is started with --rebuild until enough servers have reported.
// Its operator names the servers that will not return. Not thread-safe.
class SimulatedScheduler {
 public:
  // The observations of its operator.
  struct World {
    // True if neither a process nor a disk of that name is left.
    std::function<bool(const std::string& node)> is_lost;
    // True if a live process has adopted a routing.
    std::function<bool()> any_server_has_routing;
  };
  SimulatedScheduler(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                     const ClusterOptions& options, World world);
  ~SimulatedScheduler();
  SimulatedScheduler(const SimulatedScheduler&) = delete;
  SimulatedScheduler& operator=(const SimulatedScheduler&) = delete;

  // Continues from the saved state, or rebuilds it.
  void Start();
  // The lease flag of the next Start.
  void SetLease(std::chrono::milliseconds lease) { lease_ = lease; }
  MachineClock& clock() { return *clock_; }
  void Kill();
  // Starts another job from the checkpoint at this path. REQUIRES: the job has ended everywhere.
  void StartFrom(const std::string& checkpoint);
  // The last saved state.
  SchedulerState Saved() const;
  // Kills the process and deletes its saved state.
  void LoseState();
  // Partitions that no server has any more. The scheduler may refuse because of these, and only
  // these.
  void ExpectRefusal(std::set<uint32_t> lost_partitions) {
    lost_partitions_ = std::move(lost_partitions);
  }

  // Null if it is dead.
  const std::shared_ptr<Incarnation>& incarnation() const { return incarnation_; }
  // The routing that the scheduler publishes; nullopt while it is dead or has none.
  std::optional<RoutingTable> PublishedRouting();
  // The epoch of that routing; 0 without one. Cheap if the scheduler has not changed since the last
  // call.
  uint64_t PublishedEpoch();
  // True if the scheduler has no state and collects reports, or is dead without a state.
  bool is_rebuilding() const { return state_is_lost_; }
  uint64_t rebuilds() const { return rebuilds_; }
  // Rebuilds that failed and will be retried.
  uint64_t refusals() const { return refusals_; }
  // Primaries that handed over to a backup and became one.
  uint64_t role_exchanges() const { return role_exchanges_; }
  // The state of the job, also before it is saved; JOB_STATE_UNSPECIFIED while the process is dead.
  JobState state() const;
  // The job has completed, and nodes may know. It stays completed.
  bool has_completed() const { return has_completed_; }
  // The process has told the nodes and has ended; its successors end at once.
  bool has_closed() const { return has_closed_; }
  // A process was told that the job has completed.
  void OnToldOfCompletion(const std::string& process);
  // The scheduler has confirmed that the rank has finished. It stays finished.
  void OnRankFinished(uint32_t rank) { finished_ranks_.insert(rank); }
  // Processes that have continued a job that was finishing, or had completed.
  uint64_t starts_while_finishing() const { return starts_while_finishing_; }
  uint64_t starts_after_completion() const { return starts_after_completion_; }
  // True if it has refused because of exactly the lost partitions, or because no server is left
  // that it could ask: the job has ended.
  bool has_refused_permanently() const { return refused_permanently_; }
  // The reason, once the job has failed.
  const std::string& failure() const { return failure_; }
  // The mistake of the scheduler; empty: none.
  const std::string& violation() const { return violation_; }

 private:
  // State that dies with the process.
  struct Process;
  class ServerCallerOnNetwork;

  void StartCoordinator();
  void StartRebuild();
  void Receive(const std::string& rpc, const IncomingMessage& request, MonotonicDuration timeout,
               SimulatedNetwork::Reply reply);
  void ReceiveInRebuild(const std::string& rpc, const IncomingMessage& request,
                        SimulatedNetwork::Reply reply);
  void Tick();
  void TickRebuild();
  void OnRefusal(const absl::Status& why);
  // `routing` is published.
  void NoteExchanges(const RoutingTable& routing);
  void BeginSave();
  // Completes a checkpoint after a while. If the process dies before that, it may die while it
  // writes.
  void WriteCheckpoint(const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                       absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);
  // Checks that what was finished is finished.
  void CheckState(const SchedulerState& state);
  void NoteCompletion();
  // Ends the process once all nodes have heard of the end, or after a while. As in
  // SchedulerProcess.
  void MaybeClose();
  // Later, because the process's own code is on the stack.
  void EndProcess();

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions& options_;
  const World world_;
  const std::unique_ptr<MachineClock> clock_;
  std::chrono::milliseconds lease_;
  std::shared_ptr<Incarnation> incarnation_;
  std::unique_ptr<Process> process_;
  // The saved state.
  std::string saved_;
  std::string failure_;
  // The published routing may have changed since published_epoch_ was computed.
  bool routing_changed_ = true;
  uint64_t published_epoch_ = 0;
  // The former primaries of the partitions that are handed over by that routing.
  std::map<int, std::string> yielding_;
  uint64_t role_exchanges_ = 0;

  uint64_t job_id_;
  // The checkpoint that the job starts from; empty: none.
  std::string restore_;
  bool has_completed_ = false;
  bool has_closed_ = false;
  std::set<uint32_t> finished_ranks_;
  uint64_t starts_while_finishing_ = 0;
  uint64_t starts_after_completion_ = 0;

  bool state_is_lost_ = false;
  std::set<std::string> rebuild_without_;
  std::set<uint32_t> lost_partitions_;
  uint64_t rebuilds_ = 0;
  uint64_t refusals_ = 0;
  bool refused_permanently_ = false;
  std::string violation_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
