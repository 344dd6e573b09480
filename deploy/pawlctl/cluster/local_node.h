// The servers and workers of one machine, for a job whose scheduler may run elsewhere.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_NODE_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/daemon_commands.h"

namespace pawl {

struct LocalNodeOptions {
  std::string scheduler;
  uint32_t servers = 0;
  uint32_t workers = 0;
  // NAME/ in it is the folder of a process, logs/NAME.log its log. Both outlive the processes.
  std::string data_dir;
  // Has server/ and worker/. Empty: no TLS.
  std::string tls_dir;
  bool insecure = false;
  std::vector<std::string> devices;
  // The user's flags of each worker.
  std::vector<std::string> worker_flags;
  uint32_t max_restarts = 0;
  // How long the processes may take to leave.
  MonotonicDuration leave_timeout{};
};

// Starts the processes and restarts those that die, until all have ended with success: the job has
// ended, or they were asked to leave. SIGTERM and SIGINT ask all to leave. Returns the exit code.
// No process outlives it except as ChildProcess says. Ignores SIGPIPE from then on. REQUIRES: this
// is the main thread.
int RunLocalNode(const LocalNodeOptions& options, const Programs& programs, SignalWaiter& signals);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_LOCAL_NODE_H_
