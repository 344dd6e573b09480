#include "client_lib/process/restart.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace pawl {

absl::Status RestartWithVariable(char** argv, const char* name, const std::string& value) {
  // The kernel sets the base address of the loader only if it has loaded it for the program.
  if (getauxval(AT_BASE) == 0)
    return absl::FailedPreconditionError("the program was started through the dynamic loader");
  // Use the program's own path: ps would show /proc/self/exe as the name.
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  setenv(name, value.c_str(), 1);
  if (error) return absl::InternalError(error.message());
  execv(program.c_str(), argv);
  return absl::ErrnoToStatus(errno, program.string());
}

}  // namespace pawl
