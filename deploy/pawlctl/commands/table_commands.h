// The commands pull, push, assign and digest, which read and change parameters as a client of the
// job.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_

#include "deploy/pawlctl/command_line.h"
#include "deploy/pawlctl/commands/connection_flags.h"

namespace pawl {

void AddTableCommands(CommandLine& line);

// Prints the digest to stdout or an error to stderr, and returns the exit code. A digest includes
// every partition once: while partitions move or have no primary, they are read again until
// options.timeout.
int PrintDigest(const ConnectionOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
