// The commands scale, drain, release and events.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddScaleCommands(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_SCALE_COMMANDS_H_
