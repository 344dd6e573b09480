// The pawlctl commands that ask or tell the scheduler of a running job one thing.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_

#include <string>

#include "client_lib/base/clock.h"

namespace pawl {

struct ConnectionOptions {
  // host:port
  std::string scheduler;
  MonotonicDuration timeout = std::chrono::seconds(5);
  // JSON in place of text.
  bool json = false;
};

// Each prints its answer to stdout or its error to stderr, and returns the exit code.
int StatusCommand(const ConnectionOptions& options);
int NodesCommand(const ConnectionOptions& options);
int TablesCommand(const ConnectionOptions& options);
int StopCommand(const ConnectionOptions& options, const std::string& reason);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_
