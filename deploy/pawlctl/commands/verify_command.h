// `pawlctl verify`: whether the replicas of a running job's partitions are the same.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_

#include "deploy/pawlctl/commands/status_commands.h"

namespace pawl {

// Asks all servers until every partition is decided (ReplicaComparison) or options.timeout is over,
// in all. Prints the comparison. kExitDone if all are equal; kExitFailed if some differ or could
// not be compared.
int VerifyCommand(const ConnectionOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_VERIFY_COMMAND_H_
