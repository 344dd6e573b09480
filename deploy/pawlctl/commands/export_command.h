// The command export.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddExportCommand(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_
