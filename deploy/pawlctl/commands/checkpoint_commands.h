// The commands checkpoint, checkpoints and stop.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_

#include <string>

#include "client_lib/base/env.h"
#include "deploy/pawlctl/command_line.h"
#include "deploy/pawlctl/commands/connection_flags.h"

namespace pawl {

void AddCheckpointCommands(CommandLine& line);

// Each prints the answer to stdout or an error to stderr, and returns the exit code.
//
// Requests a checkpoint in `dir`, relative to the current folder; empty: the job's own folder.
// Waits for options.timeout. The request is withdrawn if this process ends earlier.
int MakeCheckpoint(const ConnectionOptions& options, const std::string& dir);
// Lists the checkpoints in `dir`. Reads and checks each; leaves out those that are deleted
// meanwhile. kExitFailed if one is damaged or cannot be read.
int ListCheckpoints(const std::string& dir, bool json, Env& env = Env::Real());

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_
