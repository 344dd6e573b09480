// The scheduler and the servers of a job as simulated processes: the product's own objects on a
// simulated network.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "server/data_plane/checkpointer.h"
#include "server/server_node.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/simulated_log.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_scheduler.h"

namespace pawl {

// How often followers caught up in each way: CatchUpFigures.
struct CatchUps {
  uint64_t by_tail = 0;
  uint64_t by_log = 0;
  uint64_t by_going_back = 0;
  uint64_t by_snapshot = 0;

  CatchUps& operator+=(const CatchUps& other) {
    by_tail += other.by_tail;
    by_log += other.by_log;
    by_going_back += other.by_going_back;
    by_snapshot += other.by_snapshot;
    return *this;
  }
};

// Restarts a process that exits, as a supervisor does, until the job has ended. Not thread-safe.
class SimulatedCluster {
 public:
  SimulatedCluster(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                   ClusterOptions options);
  ~SimulatedCluster();
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  int servers() const { return options_.servers; }
  static int SiteOfServer(int server) { return 1 + server; }

  SimulatedScheduler& scheduler() { return scheduler_; }
  // The file system of the checkpoints. REQUIRES: checkpoints are made.
  FaultEnv& files() { return *options_.files; }

  // Kills the running process first.
  void StartServer(int index);
  void KillServer(int index);
  // Empties the disk. REQUIRES: the server is dead.
  void WipeDisk(int index) {
    const SimulatedDisk& before = servers_[index].disk;
    SimulatedDisk disk;
    disk.full = before.full;
    disk.hangs = before.hangs;
    servers_[index].disk = std::move(disk);
  }
  // Makes the stored partitions unreadable. REQUIRES: the server is dead.
  void DamageDisk(int index) { servers_[index].disk.damaged = true; }
  void BreakDisk(int index, bool full, bool hangs) {
    servers_[index].disk.full = full;
    servers_[index].disk.hangs = hangs;
  }
  // True if a process that starts on the disk recovers a replica of the partition.
  bool IsOnDisk(int server, uint32_t partition) const {
    return servers_[server].disk.partitions.contains(partition);
  }
  // Starts another process on the server's machine with a copy of its present disk. Replaces the
  // previous copy.
  void StartCopy(int index);
  void KillCopy() { KillServer(servers()); }
  // Equivalent to SIGTERM.
  void DrainServer(int index);

  // Null if it is dead.
  const std::shared_ptr<Incarnation>& server_incarnation(int server) const {
    return servers_[server].incarnation;
  }
  MachineClock& server_clock(int server) { return *servers_[server].clock; }
  ServerNode* server(int server) { return servers_[server].node.get(); }
  // Summed over all incarnations of all servers.
  CatchUps catch_ups() const;
  // True if a process has the name, or will have it because of its disk.
  bool HasNode(const std::string& node) const;
  bool AnyServerHasRouting() const;
  // Pushes that were delayed or asked to return because of learners.
  uint64_t pushes_delayed() const { return pushes_delayed_ + SumOver(&DataPlane::pushes_delayed); }
  uint64_t pushes_refused() const { return pushes_refused_ + SumOver(&DataPlane::pushes_refused); }

 private:
  struct ServerProcess {
    std::shared_ptr<Incarnation> incarnation;
    std::unique_ptr<MachineClock> clock;
    SimulatedDisk disk;
    std::unique_ptr<SimulatedControlChannel> channel;
    std::unique_ptr<SimulatedTransport> peers;
    std::unique_ptr<ServerNode> node;
    // Null if no checkpoints are made.
    std::unique_ptr<Checkpointer> checkpointer;
    int start_count = 0;
    bool draining = false;
  };

  void Receive(ServerProcess& server, const std::string& rpc, IncomingMessage request,
               MonotonicDuration timeout, std::shared_ptr<const std::atomic<bool>> cancelled,
               SimulatedNetwork::Reply reply);
  uint64_t SumOver(uint64_t (DataPlane::*count)() const) const;
  void StartProcess(int index, int site);
  void TickServer(int index, const std::shared_ptr<Incarnation>& incarnation);
  void OnServerEnded(int index, const absl::Status& how);

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions options_;
  SimulatedScheduler scheduler_;
  // Summed over ended incarnations.
  CatchUps catch_ups_;
  // The last element is the copy.
  std::vector<ServerProcess> servers_;
  // Summed over ended processes.
  uint64_t pushes_delayed_ = 0;
  uint64_t pushes_refused_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
