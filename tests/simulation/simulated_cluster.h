// The scheduler and the servers of a job as simulated processes: the product's own objects on a simulated network.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "server/server_node.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/simulated_log.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_scheduler.h"

namespace pawl {

// Not thread-safe. A process that ends by itself is started again, as a supervisor would, until the job is over.
class SimulatedCluster {
 public:
  SimulatedCluster(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random, ClusterOptions options);
  ~SimulatedCluster();
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  int servers() const { return static_cast<int>(servers_.size()); }
  static int SiteOfServer(int server) { return 1 + server; }

  SimulatedScheduler& scheduler() { return scheduler_; }

  // What is alive is killed before.
  void StartServer(int index);
  void KillServer(int index);
  // REQUIRES: it is dead.
  void WipeDisk(int index) { servers_[index].disk = SimulatedDisk(); }
  // As SIGTERM does.
  void DrainServer(int index);

  // Null if it is dead.
  const std::shared_ptr<Life>& server_life(int server) const { return servers_[server].life; }
  ServerNode* server(int server) { return servers_[server].node.get(); }

 private:
  struct ServerProcess {
    std::shared_ptr<Life> life;
    std::unique_ptr<MachineClock> clock;
    SimulatedDisk disk;
    std::unique_ptr<SimulatedControlChannel> channel;
    std::unique_ptr<SimulatedTransport> peers;
    std::unique_ptr<ServerNode> node;
    int lives = 0;
    bool draining = false;
  };

  void TickServer(int index, const std::shared_ptr<Life>& life);
  void ServerHasEnded(int index, const absl::Status& how);

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions options_;
  SimulatedScheduler scheduler_;
  std::vector<ServerProcess> servers_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
