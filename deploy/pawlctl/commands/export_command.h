// `pawlctl export`.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_

#include <string>

namespace pawl {

// Writes the model of `checkpoint` to the folder `out` (server/export/model_export.h), prints what
// that was, or the error on stderr, and returns the exit code: 2 if one of the two folders is not
// what it must be, 1 if what is in them cannot be read or written.
int ExportCommand(const std::string& checkpoint, const std::string& out, bool json);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_EXPORT_COMMAND_H_
