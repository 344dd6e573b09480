#include "client_lib/process/restart.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace pawl {

absl::Status RestartWithVariable(char** argv, const char* name, const std::string& value) {
  // Use the program's own path: ps would show /proc/self/exe as the name.
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  setenv(name, value.c_str(), 1);
  if (error) return absl::InternalError(error.message());
  execv(program.c_str(), argv);
  return absl::ErrnoToStatus(errno, program.string());
}

}  // namespace pawl
