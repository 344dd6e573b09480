// Re-executes the process with an environment variable that a library reads before main runs.
#ifndef PAWL_CLIENT_LIB_PROCESS_RESTART_H_
#define PAWL_CLIENT_LIB_PROCESS_RESTART_H_

#include <string>

#include "absl/status/status.h"

namespace pawl {

// Sets the variable and executes this program again, with its id, open files and arguments.
// Returns only if that fails; the variable stays set. FAILED_PRECONDITION if the program was
// started through the dynamic loader by name, which would be executed instead. Call it before other
// threads run.
absl::Status RestartWithVariable(char** argv, const char* name, const std::string& value);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_RESTART_H_
