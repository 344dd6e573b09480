#include "deploy/pawlctl/local_cluster.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr char kSchedulerName[] = "pawl-scheduler";
constexpr char kServerName[] = "pawl-server";
constexpr char kWorkerName[] = "pawl-worker";
// All of them are on this machine: nobody else needs to reach them.
constexpr char kAnyLocalPort[] = "127.0.0.1:0";
// Longer than the scheduler's default: all processes share this machine's cores, and one that waits its turn for
// a second is not dead. A death is still reported well within 10 s.
constexpr int kLeaseMs = 5000;

bool AllExecutable(const Programs& programs) {
  for (const std::string& program : {programs.scheduler, programs.server, programs.worker}) {
    if (access(program.c_str(), X_OK) != 0) return false;
  }
  return true;
}

// Processes describe themselves as host:pid.
bool Describes(const NodeStatus& node, const ChildProcess& child) {
  return absl::EndsWith(node.description(), absl::StrCat(":", child.pid()));
}

}  // namespace

absl::StatusOr<Programs> FindPrograms(const std::string& own_program, const std::string& bin_folder) {
  const auto beside = [](const std::string& folder) {
    return Programs{absl::StrCat(folder, "/", kSchedulerName), absl::StrCat(folder, "/", kServerName),
                    absl::StrCat(folder, "/", kWorkerName)};
  };
  if (!bin_folder.empty()) {
    const Programs programs = beside(bin_folder);
    if (AllExecutable(programs)) return programs;
    return absl::NotFoundError(absl::StrCat("PAWL_BIN_DIR=", bin_folder, " does not hold ", kSchedulerName, ", ",
                                            kServerName, " and ", kWorkerName, " as programs"));
  }
  const std::string own_folder = std::filesystem::path(own_program).parent_path().string();
  if (const Programs programs = beside(own_folder); AllExecutable(programs)) return programs;
  const std::string root = std::filesystem::path(own_folder).parent_path().parent_path().string();
  const Programs built = {absl::StrCat(root, "/scheduler/", kSchedulerName), absl::StrCat(root, "/server/", kServerName),
                          absl::StrCat(root, "/worker/", kWorkerName)};
  if (AllExecutable(built)) return built;
  return absl::NotFoundError(absl::StrCat(
      kSchedulerName, ", ", kServerName, " and ", kWorkerName, " are neither in ", own_folder, " nor in ", root,
      "/{scheduler,server,worker}: build them (bazel build //scheduler:", kSchedulerName, " //server:", kServerName,
      " //worker:", kWorkerName, ") or name their folder by PAWL_BIN_DIR"));
}

LocalCluster::LocalCluster(Programs programs, const OutFolder& out, uint32_t servers, uint32_t workers)
    : programs_(std::move(programs)), out_(out), servers_(servers), workers_(workers) {}

absl::Status LocalCluster::Start(const std::string& process, const std::string& program,
                                 std::vector<std::string> arguments) {
  const bool is_scheduler = children_.empty();
  // A node's log gets its name from NameNodes; until then it must not have that of another node.
  const std::string log = out_.log(is_scheduler ? process : absl::StrCat("unnamed-", process));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child,
                        ChildProcess::Start({process, program, std::move(arguments), log}));
  children_.push_back({.process = std::move(child), .taken = false, .named = is_scheduler});
  return absl::OkStatus();
}

absl::Status LocalCluster::StartScheduler() {
  return Start("scheduler", programs_.scheduler,
               {absl::StrCat("--listen=", kAnyLocalPort), absl::StrCat("--data_dir=", out_.data("scheduler")),
                absl::StrCat("--job=", out_.job_file()), absl::StrCat("--servers=", servers_),
                absl::StrCat("--workers=", workers_), absl::StrCat("--lease_ms=", kLeaseMs),
                absl::StrCat("--address_file=", out_.address_file())});
}

std::string LocalCluster::SchedulerAddress() const {
  std::ifstream file(out_.address_file());
  std::string address;
  std::getline(file, address);
  // Written in one piece, with a line's end or not; eof before any character is a file not yet filled.
  return address;
}

absl::Status LocalCluster::StartNodes(const std::string& scheduler_address) {
  for (uint32_t i = 0; i < servers_; ++i) {
    const std::string process = absl::StrCat("server-", i);
    PAWL_RETURN_IF_ERROR(Start(process, programs_.server,
                               {absl::StrCat("--scheduler=", scheduler_address), absl::StrCat("--listen=", kAnyLocalPort),
                                absl::StrCat("--data_dir=", out_.data(process))}));
  }
  for (uint32_t i = 0; i < workers_; ++i) {
    PAWL_RETURN_IF_ERROR(Start(absl::StrCat("worker-", i), programs_.worker,
                               {absl::StrCat("--scheduler=", scheduler_address)}));
  }
  return absl::OkStatus();
}

void LocalCluster::NameNodes(const GetStatusResponse& status) {
  for (Child& child : children_) {
    if (child.named) continue;
    for (const NodeStatus& node : status.nodes()) {
      if (!Describes(node, *child.process)) continue;
      // A log that keeps its first name is not worth failing for.
      child.process->Rename(node.node(), out_.log(node.node())).IgnoreError();
      child.named = true;
      break;
    }
  }
}

bool LocalCluster::IsRegistered(const GetStatusResponse& status, const ChildProcess& child) {
  for (const NodeStatus& node : status.nodes()) {
    if (Describes(node, child)) return true;
  }
  return false;
}

std::vector<ChildProcess*> LocalCluster::TakeEnded() {
  std::vector<ChildProcess*> ended;
  for (Child& child : children_) {
    if (child.taken || !child.process->HasEnded()) continue;
    child.taken = true;
    ended.push_back(child.process.get());
  }
  return ended;
}

size_t LocalCluster::Running() {
  size_t running = 0;
  for (Child& child : children_) running += !child.process->HasEnded();
  return running;
}

void LocalCluster::SignalAll(int signal) {
  for (Child& child : children_) child.process->Signal(signal);
}

}  // namespace pawl
