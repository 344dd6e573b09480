// The command watch: a running job's progress as it happens.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_WATCH_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_WATCH_COMMAND_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddWatchCommand(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_WATCH_COMMAND_H_
