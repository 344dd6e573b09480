// pawlctl scale, drain and events.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client_lib/base/clock.h"
#include "deploy/pawlctl/commands/status_commands.h"

namespace pawl {

// Each returns the exit code. `wait`: until it is done, for so long at most; nullopt: not at all.

int ScaleCommand(const ConnectionOptions& options, std::optional<uint32_t> servers,
                 std::optional<uint32_t> workers, std::optional<MonotonicDuration> wait);
// Has a server delete the replicas that it keeps until others have them.
int ReleaseKeptCommand(const ConnectionOptions& options, const std::string& node, bool force);
int DrainCommand(const ConnectionOptions& options, const std::string& node, bool force,
                 std::optional<MonotonicDuration> wait);
// With `follow`, until the job is over.
int EventsCommand(const ConnectionOptions& options, bool follow);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
