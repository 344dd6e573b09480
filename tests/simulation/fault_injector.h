// Brings the faults of a schedule upon the processes and the network.
#ifndef PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_
#define PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_

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

// With durability MEMORY a server is disturbed only while no other one is and every partition has
// two replicas, so that the data lives on. Not thread-safe.
class FaultInjector {
 public:
  // All of them outlive it.
  FaultInjector(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                const Schedule& schedule, SimulatedCluster& cluster,
                std::vector<SimulatedSender*> senders);

  void Start();
  // No more faults; what is dead or paused goes on, the network is as good as new.
  void End();
  // The disk that was left as it was by End is good again.
  void MendDisk();

  uint64_t faults() const { return faults_; }
  uint64_t state_losses() const { return state_losses_; }

 private:
  using Fault = void (FaultInjector::*)();

  void Next();
  void KillServer();
  void KillAllServers();
  void KillScheduler();
  void KillSender();
  void Drain();
  void Pause();
  // The machine of a server or of the scheduler, and what runs on it.
  void Suspend();
  void CutNetwork();
  void DisturbNetwork();
  void LoseDisk();
  void BreakDisk();
  void CopyDisk();
  // What the scheduler has saved is gone; with it, of some servers too.
  void LoseSchedulerState();
  void LoseSchedulerStateAndServers();

  bool MayDisturbServer(int server);
  // All servers serve, and every partition has all replicas that the job wants.
  bool IsRedundant();
  // All servers act by what the scheduler tells.
  bool IsAdopted(const RoutingTable& routing);
  // REQUIRES: IsAdopted.
  bool AllHaveTheTable();
  void StartSchedulerIn(MonotonicDuration high);
  void PauseIncarnation(const std::shared_ptr<Incarnation>& incarnation);
  void SuspendMachine(const std::shared_ptr<Incarnation>& incarnation, MachineClock& clock);
  // After a time of low to high.
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
  // Lives that are paused, in the order in which they were.
  std::vector<std::shared_ptr<Incarnation>> paused_;
  // Servers that are dead, paused, draining or cut off.
  std::multiset<int> disturbed_;
  uint64_t network_period_ = 0;
  // The server whose disk is broken; -1: none.
  int broken_disk_ = -1;
  // All servers have acted by a routing.
  bool has_begun_ = false;
  // A disk was lost since all replicas were there.
  bool disk_is_lost_ = false;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_FAULT_INJECTOR_H_
