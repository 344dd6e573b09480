// The commands status, nodes and tables, which each make one call to the scheduler.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddStatusCommands(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_STATUS_COMMANDS_H_
