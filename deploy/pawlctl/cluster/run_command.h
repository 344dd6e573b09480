// The commands run and restore: one job on a cluster of processes on this machine, to its end.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_

#include <string>

#include "deploy/pawlctl/cluster/local_job.h"
#include "deploy/pawlctl/command_line.h"

namespace pawl {

// Adds --servers, --workers, --device and --index_dir, the same in all commands that start
// processes on this machine. `workers`: the help of --workers.
void AddProcessFlags(CLI::App& command, RunOptions& options, const std::string& workers);

// The commands must run on the main thread, before any other thread starts.
void AddRunCommands(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
