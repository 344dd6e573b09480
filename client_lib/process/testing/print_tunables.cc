// Prints GLIBC_TUNABLES as it is after RestartWithHugePages, and the process id before and after.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "client_lib/process/malloc_tuning.h"

int main(int, char** argv) {
  if (std::getenv("FIRST_PID") == nullptr) setenv("FIRST_PID", std::to_string(getpid()).c_str(), 1);
  pawl::RestartWithHugePages(argv);
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  std::printf("%s %s\n", tunables == nullptr ? "none" : tunables,
              std::to_string(getpid()) == std::getenv("FIRST_PID") ? "same process" : "another");
}
