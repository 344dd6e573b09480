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
#include "server/server_node.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/simulated_log.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_scheduler.h"

namespace pawl {

// How often followers caught up in which way: CatchUpFigures.
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

// Not thread-safe. A process that ends by itself is started again, as a supervisor would, until the
// job is over.
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

  // What is alive is killed before.
  void StartServer(int index);
  void KillServer(int index);
  // Nothing is on it any more. REQUIRES: the server is dead.
  void WipeDisk(int index) {
    const SimulatedDisk& before = servers_[index].disk;
    SimulatedDisk disk;
    disk.full = before.full;
    disk.hangs = before.hangs;
    servers_[index].disk = std::move(disk);
  }
  void BreakDisk(int index, bool full, bool hangs) {
    servers_[index].disk.full = full;
    servers_[index].disk.hangs = hangs;
  }
  // Starts another process on the server's machine, with a copy of its disk as it is now; in place
  // of the last copy.
  void StartCopy(int index);
  void KillCopy() { KillServer(servers()); }
  // As SIGTERM does.
  void DrainServer(int index);

  // Null if it is dead.
  const std::shared_ptr<Incarnation>& server_incarnation(int server) const {
    return servers_[server].incarnation;
  }
  MachineClock& server_clock(int server) { return *servers_[server].clock; }
  ServerNode* server(int server) { return servers_[server].node.get(); }
  // Of all incarnations of all servers.
  CatchUps catch_ups() const;
  // Some process has the name or will have it, by its disk.
  bool IsThere(const std::string& node) const;
  bool AnyServerHasRouting() const;
  // Pushes that waited, or were to come again, for the sake of learners.
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
    int lives = 0;
    bool draining = false;
  };

  uint64_t SumOver(uint64_t (DataPlane::*count)() const) const;
  void StartProcess(int index, int site);
  void TickServer(int index, const std::shared_ptr<Incarnation>& incarnation);
  void ServerHasEnded(int index, const absl::Status& how);

  EventLoop& loop_;
  SimulatedNetwork& network_;
  SeededRandom& random_;
  const ClusterOptions options_;
  SimulatedScheduler scheduler_;
  // Of lives that have ended.
  CatchUps catch_ups_;
  // The last one is the copy.
  std::vector<ServerProcess> servers_;
  // Of processes that are gone.
  uint64_t pushes_delayed_ = 0;
  uint64_t pushes_refused_ = 0;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
