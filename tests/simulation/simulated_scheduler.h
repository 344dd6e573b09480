// The scheduler of a job as a simulated process, with its store.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/simulated_network.h"

namespace pawl {

inline constexpr char kSchedulerAddress[] = "scheduler:7000";
inline constexpr int kSchedulerSite = 0;

struct ClusterOptions {
  Job job;
  int servers = 1;
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds lease{1000};
  // See SimulatedLog.
  bool disks_forget = false;
  // The clocks of leases drift.
  bool clocks_drift = false;
  // Leases run on a clock that stands still while a machine is suspended.
  bool leases_stand_still = false;
  // A restarted scheduler does not know how long the leases were that the one before gave.
  bool scheduler_forgets_leases = false;
  // Learners may lack little, and snapshots are slow.
  bool small_backlogs = false;
  // The scheduler is about to ask servers to release the rank.
  std::function<void(uint32_t rank, uint64_t incarnation)> releasing = [](uint32_t, uint64_t) {};
};

// Of a machine; both ends of a lease within kLeaseDriftDivisor.
inline constexpr int kMaxDrift = 4000;
std::unique_ptr<MachineClock> DrawClock(const EventLoop& loop, SeededRandom& random,
                                        const ClusterOptions& options);

// Not thread-safe. One that has lost its state is started with --rebuild, again and again until the
// servers have said enough; its operator names those that are dead for good.
class SimulatedScheduler {
 public:
  // What its operator can see.
  struct World {
    // Neither a process nor a disk of that name is left.
    std::function<bool(const std::string& node)> is_dead_for_good;
    // A process lives that has adopted a routing.
    std::function<bool()> any_server_has_routing;
  };
  SimulatedScheduler(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                     const ClusterOptions& options, World world);
  ~SimulatedScheduler();
  SimulatedScheduler(const SimulatedScheduler&) = delete;
  SimulatedScheduler& operator=(const SimulatedScheduler&) = delete;

  // It goes on from what it had saved, or rebuilds that.
  void Start();
  // The flag of the next Start.
  void SetLease(std::chrono::milliseconds lease) { lease_ = lease; }
  MachineClock& clock() { return *clock_; }
  void Kill();
  // It dies, and what it had saved is gone.
  void LoseState();
  // Partitions that no server has any more: it is right to refuse because of these, and of these
  // alone.
  void ExpectRefusal(std::set<uint32_t> lost_partitions) {
    lost_partitions_ = std::move(lost_partitions);
  }

  // Null if it is dead.
  const std::shared_ptr<Incarnation>& incarnation() const { return incarnation_; }
  // As it tells it; nullopt while it is dead or has none.
  std::optional<RoutingTable> ToldRouting();
  // Of that; 0 without one. Cheap where nothing has happened at the scheduler since the last call.
  uint64_t ToldEpoch();
  // It has no state, and listens for what servers say; or is dead without a state.
  bool is_rebuilding() const { return state_is_lost_; }
  uint64_t rebuilds() const { return rebuilds_; }
  // Rebuilding ended without a state, and will be tried again.
  uint64_t refusals() const { return refusals_; }
  // It has refused, naming exactly the partitions that are lost, or when no server runs any more
  // that it could ask: the job is over.
  bool refused_for_good() const { return refused_for_good_; }
  // Once the job has failed: why.
  const std::string& failure() const { return failure_; }
  // What a rebuilding scheduler has done wrong; empty: nothing.
  const std::string& violation() const { return violation_; }

 private:
  // What dies with the process.
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
  void BeginSave();

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions& options_;
  const World world_;
  const std::unique_ptr<MachineClock> clock_;
  std::chrono::milliseconds lease_;
  std::shared_ptr<Incarnation> incarnation_;
  std::unique_ptr<Process> process_;
  // What it has saved.
  std::string saved_;
  std::string failure_;
  // What it tells may have changed since told_epoch_ was looked up.
  bool told_anew_ = true;
  uint64_t told_epoch_ = 0;

  bool state_is_lost_ = false;
  std::set<std::string> rebuild_without_;
  std::set<uint32_t> lost_partitions_;
  uint64_t rebuilds_ = 0;
  uint64_t refusals_ = 0;
  bool refused_for_good_ = false;
  std::string violation_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
