// `pawlctl token`: makes a token for a person or a program without a certificate.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_TOKEN_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_TOKEN_COMMAND_H_

#include "deploy/pawlctl/command_line.h"

namespace pawl {

void AddTokenCommand(CommandLine& line);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_TOKEN_COMMAND_H_
