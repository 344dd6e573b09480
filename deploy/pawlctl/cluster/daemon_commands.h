// How servers and workers are started.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_DAEMON_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_DAEMON_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/process/child_process.h"

namespace pawl {

// The daemons' executables.
struct Programs {
  std::string scheduler;
  std::string server;
  std::string worker;
  // deploy/tls/make_certificates; needed only for TLS.
  std::string make_certificates = {};
  // `worker` is the user's own: it gets the scheduler's address, its certificate and its device by
  // the environment, and only the flags that its user has given.
  bool is_own_worker = false;
};

// The path of the program that a user runs as workers, looked up in PATH if it has no slash.
// INVALID_ARGUMENT: it cannot be executed.
absl::StatusOr<std::string> FindWorkerProgram(const std::string& name);

// The name, addresses and folders of a server or worker. Empty fields are left to the process's
// defaults.
struct DaemonPlace {
  // "server-0": the name of the process.
  std::string name;
  std::string scheduler;
  // Servers only.
  std::string listen;
  std::string data_dir;
  std::string tls_dir;
};

// The commands without the log.
ChildOptions ServerCommand(const Programs& programs, const DaemonPlace& place);
// The `number`-th worker of this machine, from 0, gets `devices` in turn. `flags` are those of its
// user.
ChildOptions WorkerCommand(const Programs& programs, const DaemonPlace& place, uint32_t number,
                           const std::vector<std::string>& devices,
                           const std::vector<std::string>& flags);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_DAEMON_COMMANDS_H_
