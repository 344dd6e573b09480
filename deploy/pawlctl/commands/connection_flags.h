// The flags of commands that call a running job.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_

#include <chrono>
#include <memory>
#include <string>

#include "client_lib/base/clock.h"
#include "client_lib/security/security.h"
#include "deploy/pawlctl/command_line.h"

namespace pawl {

struct ConnectionOptions {
  // "HOST:PORT"
  std::string scheduler;
  SecurityOptions security_options = {};
  // Opened by the command's check.
  std::shared_ptr<const Security> security = {};
  MonotonicDuration timeout = std::chrono::seconds(5);
  // JSON instead of text.
  bool json = false;
};

void AddJsonFlag(CLI::App& command, bool& json);
// Adds --scheduler, --tls_dir, --insecure and --json, and sets the command's check.
void AddSchedulerFlags(CLI::App& command, ConnectionOptions& options);
// Adds those and --timeout.
void AddConnectionFlags(CLI::App& command, ConnectionOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_
