// The scheduler of a job as a simulated process, with its store.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_

#include <chrono>
#include <cstdint>
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
};

// Of a machine; both ends of a lease within kLeaseDriftDivisor.
inline constexpr int kMaxDrift = 4000;
std::unique_ptr<MachineClock> DrawClock(const EventLoop& loop, SeededRandom& random, const ClusterOptions& options);

// Not thread-safe.
class SimulatedScheduler {
 public:
  SimulatedScheduler(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random, const ClusterOptions& options);
  ~SimulatedScheduler();
  SimulatedScheduler(const SimulatedScheduler&) = delete;
  SimulatedScheduler& operator=(const SimulatedScheduler&) = delete;

  // It goes on from what it had saved.
  void Start();
  // The flag of the next Start.
  void SetLease(std::chrono::milliseconds lease) { lease_ = lease; }
  MachineClock& clock() { return *clock_; }
  void Kill();

  // Null if it is dead.
  const std::shared_ptr<Life>& life() const { return life_; }
  // As it tells it; nullopt while it is dead or has none.
  std::optional<RoutingTable> ToldRouting();
  // Of that; 0 without one. Cheap where nothing has happened at the scheduler since the last call.
  uint64_t ToldEpoch();
  // It may have asked servers to release the rank.
  bool MayBeReleased(uint32_t rank) const { return released_.contains(rank); }
  // Once the job has failed: why.
  const std::string& failure() const { return failure_; }

 private:
  // What dies with the process.
  struct Process;
  class ServerCallerOnNetwork;

  void Receive(const std::string& rpc, const IncomingMessage& request, MonotonicDuration timeout,
               SimulatedNetwork::Reply reply);
  void Tick();
  void BeginSave();

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions& options_;
  const std::unique_ptr<MachineClock> clock_;
  std::chrono::milliseconds lease_;
  std::shared_ptr<Life> life_;
  std::unique_ptr<Process> process_;
  // What it has saved.
  std::string saved_;
  std::string failure_;
  // What it tells may have changed since told_epoch_ was looked up.
  bool told_anew_ = true;
  uint64_t told_epoch_ = 0;
  std::set<uint32_t> released_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_SCHEDULER_H_
