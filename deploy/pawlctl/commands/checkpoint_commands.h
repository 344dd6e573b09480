// `pawlctl checkpoint` and `pawlctl checkpoints`.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_

#include <string>

#include "client_lib/base/clock.h"
#include "deploy/pawlctl/commands/status_commands.h"

namespace pawl {

// Each prints the answer, or the error on stderr, and returns the exit code.
//
// Has a checkpoint made in `dir`, which counts from the current folder; empty: the job's own. Waits
// for options.timeout; a process that ends before takes its wish back.
int CheckpointCommand(const ConnectionOptions& options, const std::string& dir);
// The same, for which `wait` is the limit, and then ends the job; if there is no checkpoint the job
// goes on.
int StopWithCheckpointCommand(const ConnectionOptions& options, const std::string& dir,
                              MonotonicDuration wait, const std::string& reason);
// What checkpoints there are in `dir`, each read and checked. 1 if one of them is damaged.
int ListCheckpointsCommand(const std::string& dir, bool json);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_CHECKPOINT_COMMANDS_H_
