// The commands run and restore: one job on a cluster of processes on this machine, to its end.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

// The commands must run on the main thread, before any other thread starts.
void AddRunCommands(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
