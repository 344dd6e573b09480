// Applies the faults of a schedule to the processes and the network.
#ifndef PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_
#define PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/event_loop.h"
#include "tests/simulation/schedule.h"
#include "tests/simulation/simulated_cluster.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_sender.h"

namespace pawl {

// With durability MEMORY it disturbs a server only if no other server is disturbed and every
// partition has two replicas, so that the data survives. Not thread-safe.
class FaultInjector {
 public:
  // The arguments outlive this object.
  FaultInjector(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                const Schedule& schedule, SimulatedCluster& cluster,
                std::vector<SimulatedSender*> senders);

  void Start();
  // Ends the faults: restarts dead processes, resumes paused ones, and repairs the network.
  void End();
  // The scheduler collects the job's result: some faults follow within this time.
  void OnFinishing(std::chrono::milliseconds period);
  // The final checkpoint is complete, and the scheduler has not heard of it: it may die now.
  void OnFinalCheckpoint();
  // Repairs the disk that End left broken.
  void RepairDisk();

  uint64_t faults() const { return faults_; }
  uint64_t state_losses() const { return state_losses_; }

 private:
  using Fault = void (FaultInjector::*)();

  void Next();
  void Inject();
  void KillServer();
  void KillAllServers();
  void KillScheduler();
  void KillSender();
  void Drain();
  void Pause();
  // Suspends the machine of a server or of the scheduler, with its processes.
  void Suspend();
  void PartitionNetwork();
  void DisturbNetwork();
  void LoseDisk();
  void BreakDisk();
  void CopyDisk();
  // Checkpoints find no room for a while.
  void FillFolder();
  // Deletes the scheduler's saved state, in some schedules together with some servers.
  void LoseSchedulerState();
  void LoseSchedulerStateAndServers();
  // Pauses a server until others have acknowledged changes without it. Then deletes the state and
  // restarts the other servers, so that only the paused one remembers a routing: an outdated one.
  void LoseSchedulerStateBehindAPause();
  // Restarts a server, waits until a primary hands over to it or to another one, and then deletes
  // the state, in half of the cases with the successor and its disk.
  void LoseSchedulerStateInAHandover();
  void LoseSchedulerStateAtHandover(int looks);

  bool MayDisturbServer(int server);
  // True if all servers serve and every partition has all replicas that the job wants.
  bool IsRedundant();
  // True if every partition of the table has them, and no routing waits for confirmation.
  bool HasAllReplicas(const RoutingTable& routing) const;
  // True if all servers have adopted the scheduler's routing.
  bool IsAdopted(const RoutingTable& routing);
  // True once all servers have adopted a routing and hold the table, with durability LOG on their
  // disks. Before, a server may return without a partition without having lost data. A scheduler
  // that rebuilds its state cannot tell the difference and refuses, or the job fails.
  bool HasBegun();
  void StartSchedulerIn(MonotonicDuration high);
  void PauseIncarnation(const std::shared_ptr<Incarnation>& incarnation);
  void SuspendMachine(const std::shared_ptr<Incarnation>& incarnation, MachineClock& clock);
  // Runs the function after a time between low and high.
  void In(MonotonicDuration low, MonotonicDuration high, std::function<void()> action);
  void StartServerIn(int server);
  int RandomServer() {
    return static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.servers())));
  }
  SimulatedSender& RandomSender() { return *senders_[random_.Below(senders_.size())]; }
  void Note(const std::string& what);

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const Schedule& schedule_;
  SimulatedCluster& cluster_;
  const std::vector<SimulatedSender*> senders_;
  std::vector<Fault> kinds_;
  bool ended_ = false;
  uint64_t faults_ = 0;
  uint64_t state_losses_ = 0;
  // Paused incarnations, in the order in which they were paused.
  std::vector<std::shared_ptr<Incarnation>> paused_;
  // Servers that are dead, paused, draining or cut off.
  std::multiset<int> disturbed_;
  uint64_t network_period_ = 0;
  // The server with a broken disk; -1: none.
  int broken_disk_ = -1;
  // See HasBegun.
  bool has_begun_ = false;
  // A disk was lost since all replicas were last complete.
  bool disk_is_lost_ = false;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_
