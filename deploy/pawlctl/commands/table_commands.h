// The commands pull, push, assign and digest, which read and change parameters as a client of the
// job.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddTableCommands(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
