// The server process: log, node, gRPC server and their shutdown.
#ifndef PAWL_SERVER_SERVER_DAEMON_H_
#define PAWL_SERVER_SERVER_DAEMON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client_lib/daemon/daemon.h"
#include "client_lib/security/security_options.h"
#include "server/data_plane/data_plane.h"
#include "server/server_node.h"

namespace pawl {

// More threads than partitions in a step are useless.
inline constexpr int kMaxStepThreads = 256;

// The flags of pawl-server; main.cc describes and checks them.
struct ServerDaemonOptions {
  // Empty: a free port on the interface that reaches the scheduler.
  std::string listen;
  // Empty: the address on which the server listens.
  std::string advertise;
  SecurityOptions security;
  // Empty: the server has no data directory.
  std::string data_dir;
  // Empty: checkpoints may be anywhere.
  std::vector<std::string> checkpoint_roots;
  uint64_t log_bytes = uint64_t{1} << 30;
  uint64_t scrub_bytes_per_s = uint64_t{8} << 20;
  size_t step_threads = 0;
  ServerNodeOptions node;
  // RunServer sets `helpers` and `cpu_seconds`.
  DataPlaneOptions data_plane;
};

// Runs a server until its job ends or `signal` asks it to end. Returns the exit code.
int RunServer(ServerDaemonOptions options, EndSignal& signal);

}  // namespace pawl

#endif  // PAWL_SERVER_SERVER_DAEMON_H_
