// The command verify: whether the replicas of a running job's partitions are equal.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddVerifyCommand(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_
