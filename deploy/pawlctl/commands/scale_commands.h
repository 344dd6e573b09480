// The commands scale, drain, release and events.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_

#include "client_lib/base/clock.h"
#include "deploy/pawlctl/command_line.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/scheduler_connection.h"

namespace pawl {

void AddScaleCommands(CommandLine& line);

// Prints the events to stdout or an error to stderr, and returns the exit code. `follow`: until
// the job ends, or the scheduler has not answered for max_silence.
int PrintEvents(const ConnectionOptions& options, bool follow,
                MonotonicDuration max_silence = kMaxSilence);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
