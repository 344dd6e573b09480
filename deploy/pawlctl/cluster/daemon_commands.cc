#include "deploy/pawlctl/cluster/daemon_commands.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace pawl {
namespace {

// pawl-worker's --device without a GPU.
constexpr char kCpu[] = "cpu";

void AddFlag(ChildOptions& command, absl::string_view flag, const std::string& value) {
  if (!value.empty()) command.arguments.push_back(absl::StrCat(flag, "=", value));
}

void AddVariable(ChildOptions& command, absl::string_view variable, const std::string& value) {
  if (!value.empty()) command.environment.push_back(absl::StrCat(variable, "=", value));
}

}  // namespace

absl::StatusOr<std::string> FindWorkerProgram(const std::string& name) {
  std::vector<std::string> candidates = {name};
  if (!absl::StrContains(name, '/')) {
    const char* const path = std::getenv("PATH");
    candidates.clear();
    for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':'))
      candidates.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", name));
  }
  for (const std::string& candidate : candidates) {
    std::error_code error;
    if (access(candidate.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(candidate, error))
      return candidate;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the workers' program '", name, "' is not executable",
                   candidates.size() == 1 ? "" : " in any folder of PATH"));
}

ChildOptions ServerCommand(const Programs& programs, const DaemonPlace& place) {
  ChildOptions command = {place.name, programs.server, {}, ""};
  AddFlag(command, "--scheduler", place.scheduler);
  AddFlag(command, "--listen", place.listen);
  AddFlag(command, "--data_dir", place.data_dir);
  AddFlag(command, "--tls_dir", place.tls_dir);
  return command;
}

ChildOptions WorkerCommand(const Programs& programs, const DaemonPlace& place, uint32_t number,
                           const std::vector<std::string>& devices,
                           const std::vector<std::string>& flags) {
  ChildOptions command = {place.name, programs.worker, {}, ""};
  if (programs.is_own_worker) {
    AddVariable(command, "PAWL_SCHEDULER", place.scheduler);
    AddVariable(command, "PAWL_WORKER_DIR", place.data_dir);
    AddVariable(command, "PAWL_TLS_DIR", place.tls_dir);
  } else {
    AddFlag(command, "--scheduler", place.scheduler);
    AddFlag(command, "--data_dir", place.data_dir);
    AddFlag(command, "--tls_dir", place.tls_dir);
  }
  command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
  if (devices.empty()) return command;
  const std::string& device = devices[number % devices.size()];
  if (programs.is_own_worker) {
    AddVariable(command, "PAWL_DEVICE", device);
    return command;
  }
  AddFlag(command, "--device", device);
  uint32_t sharing = 0;
  for (uint32_t other = 0; other < number; ++other)
    sharing += devices[other % devices.size()] == device;
  // NCCL refuses two ranks on one GPU of one host. With --collectives=nccl the second worker of a
  // GPU claims to be on another host.
  if (sharing > 0 && device != kCpu)
    AddVariable(command, "NCCL_HOSTID", absl::StrCat("pawl-", sharing));
  return command;
}

}  // namespace pawl
