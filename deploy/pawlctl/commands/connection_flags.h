// The flags of commands that call a running job.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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
// Adds --tls_dir, --token_file, --ca and --insecure.
void AddTlsFlags(CLI::App& command, SecurityOptions& options);
// Opens options.security. INVALID_ARGUMENT, naming the flag: certificate or token cannot be used,
// or `address` has no port or is on another machine without TLS and --insecure. `flag` names the
// flag that has `address`.
absl::Status OpenSecurity(ConnectionOptions& options, absl::string_view flag,
                          const std::string& address);
// Adds --scheduler, the flags of AddTlsFlags and --json, and sets the command's check.
void AddSchedulerFlags(CLI::App& command, ConnectionOptions& options);
void AddTimeoutFlag(CLI::App& command, ConnectionOptions& options);
// Adds those of AddSchedulerFlags and AddTimeoutFlag.
void AddConnectionFlags(CLI::App& command, ConnectionOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_CONNECTION_FLAGS_H_
