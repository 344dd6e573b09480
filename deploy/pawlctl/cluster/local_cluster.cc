#include "deploy/pawlctl/cluster/local_cluster.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr char kSchedulerName[] = "pawl-scheduler";
constexpr char kServerName[] = "pawl-server";
constexpr char kWorkerName[] = "pawl-worker";
// openssl takes well below a second.
constexpr std::chrono::seconds kCertificatesTime{30};
constexpr size_t kErrorLines = 20;
// Reads all of the training data, which may be hundreds of gigabytes.
constexpr std::chrono::hours kIndexTime{48};
// All nodes are on this machine.
constexpr char kAnyLocalPort[] = "127.0.0.1:0";
// Longer than the scheduler's default: the processes share this machine's cores, so a process may
// wait a second for its turn. A process that died reports it itself when it is restarted.
constexpr int kLeaseMs = 5000;
// Below the ephemeral ports: while the scheduler is down, a node's attempt to connect could
// otherwise take the scheduler's port.
constexpr int kFirstPort = 10000;
constexpr int kLastPort = 32000;
constexpr int kMaxPortAttempts = 100;

bool AllExecutable(const Programs& programs) {
  for (const std::string& program : {programs.scheduler, programs.server, programs.worker}) {
    if (access(program.c_str(), X_OK) != 0) return false;
  }
  return true;
}

absl::StatusOr<std::string> FreeLocalAddress() {
  std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
  for (int attempt = 0; attempt < kMaxPortAttempts; ++attempt) {
    const int port = ports(random);
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) break;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free =
        bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(descriptor);
    if (free) return absl::StrCat("127.0.0.1:", port);
  }
  return absl::UnavailableError(absl::StrCat("found no free port from ", kFirstPort, " to ",
                                             kLastPort, " for the scheduler in ", kMaxPortAttempts,
                                             " attempts"));
}

// Nodes describe themselves as host:pid.
bool Describes(const NodeStatus& node, const ChildProcess& child) {
  return absl::EndsWith(node.description(), absl::StrCat(":", child.pid()));
}

}  // namespace

absl::StatusOr<Programs> FindPrograms(const std::string& own_program,
                                      const std::string& bin_folder) {
  const auto beside = [](const std::string& folder) {
    return Programs{absl::StrCat(folder, "/", kSchedulerName),
                    absl::StrCat(folder, "/", kServerName), absl::StrCat(folder, "/", kWorkerName),
                    absl::StrCat(folder, "/make_certificates")};
  };
  if (!bin_folder.empty()) {
    Programs programs = beside(bin_folder);
    if (AllExecutable(programs)) return programs;
    return absl::NotFoundError(absl::StrCat("PAWL_BIN_DIR=", bin_folder, " does not hold ",
                                            kSchedulerName, ", ", kServerName, " and ", kWorkerName,
                                            " as programs"));
  }
  const std::string own_folder = std::filesystem::path(own_program).parent_path().string();
  if (const Programs programs = beside(own_folder); AllExecutable(programs)) return programs;
  const std::string root = std::filesystem::path(own_folder).parent_path().parent_path().string();
  Programs built = {absl::StrCat(root, "/scheduler/", kSchedulerName),
                    absl::StrCat(root, "/server/", kServerName),
                    absl::StrCat(root, "/worker/", kWorkerName),
                    absl::StrCat(root, "/deploy/tls/certificates")};
  if (AllExecutable(built)) return built;
  return absl::NotFoundError(absl::StrCat(
      kSchedulerName, ", ", kServerName, " and ", kWorkerName, " are neither in ", own_folder,
      " nor in ", root, "/{scheduler,server,worker}: build them (bazel build //scheduler:",
      kSchedulerName, " //server:", kServerName, " //worker:", kWorkerName,
      ") or set PAWL_BIN_DIR to their folder"));
}

absl::StatusOr<Programs> FindOwnPrograms() {
  std::error_code error;
  const std::string own_program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const char* const bin_folder = std::getenv("PAWL_BIN_DIR");
  return FindPrograms(own_program, bin_folder != nullptr ? bin_folder : "");
}

absl::Status MakeCertificates(const Programs& programs, const OutFolder& out,
                              const std::string& job) {
  // The second call adds the key for `pawlctl token`.
  for (const absl::string_view flag : {"", "--token_key=local"}) {
    std::vector<std::string> arguments = {absl::StrCat("--out=", out.tls("")),
                                          absl::StrCat("--job=", job)};
    if (!flag.empty()) arguments.emplace_back(flag);
    PAWL_ASSIGN_OR_RETURN(
        const std::unique_ptr<ChildProcess> child,
        ChildProcess::Start({"make_certificates", programs.make_certificates, std::move(arguments),
                             out.log("make_certificates")}));
    if (!child->WaitUntil(Clock::Real().Now() + kCertificatesTime))
      return absl::DeadlineExceededError("--tls: make_certificates does not end");
    if (child->Succeeded()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--tls: make_certificates ", child->HowItEnded(), ":\n",
                     absl::StrJoin(child->LogTail(kErrorLines), "\n")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeDataIndex(const Programs& programs, const OutFolder& out,
                                          const std::string& index_dir) {
  std::vector<std::string> arguments = {"--make_index", absl::StrCat("--job=", out.job_file())};
  if (!index_dir.empty()) arguments.push_back(absl::StrCat("--index_dir=", index_dir));
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child,
                        ChildProcess::Start({"make_index", programs.worker, std::move(arguments),
                                             out.log("make_index")}));
  if (!child->WaitUntil(Clock::Real().Now() + kIndexTime))
    return absl::DeadlineExceededError("the index of the data is not ready");
  const std::vector<std::string> lines = child->LogTail(kErrorLines);
  if (!child->Succeeded()) {
    return absl::InvalidArgumentError(absl::StrCat("the index of the data: pawl-worker ",
                                                   child->HowItEnded(), ":\n",
                                                   absl::StrJoin(lines, "\n")));
  }
  for (absl::string_view line : lines) {
    if (absl::ConsumePrefix(&line, "data_id: ")) return std::string(line);
  }
  return absl::InternalError(
      absl::StrCat("pawl-worker --make_index printed no identity; see ", child->log()));
}

LocalCluster::LocalCluster(Programs programs, const OutFolder& out, uint32_t servers,
                           uint32_t workers, uint32_t max_restarts,
                           std::vector<std::string> devices, std::vector<std::string> worker_flags,
                           bool tls)
    : programs_(std::move(programs)),
      out_(out),
      servers_(servers),
      workers_(workers),
      devices_(std::move(devices)),
      worker_flags_(std::move(worker_flags)),
      tls_(tls),
      group_(max_restarts) {}

absl::Status LocalCluster::Start(ChildOptions command) {
  const std::string process = command.name;
  const bool is_scheduler = group_.children().empty();
  // NameNodes names a node's log. Until then it must not have another node's name.
  command.log = out_.log(is_scheduler ? process : absl::StrCat("unnamed-", process));
  // Those of the user's shell are for another cluster.
  if (!tls_) {
    for (const char* const none : {"PAWL_TLS_DIR=", "PAWL_TOKEN="})
      command.environment.emplace_back(none);
  }
  PAWL_RETURN_IF_ERROR(group_.Start(std::move(command)));
  if (is_scheduler) named_.insert(process);
  return absl::OkStatus();
}

DaemonPlace LocalCluster::Place(const std::string& process, const std::string& role) const {
  return {.name = process,
          .scheduler = scheduler_address_,
          .listen = kAnyLocalPort,
          .data_dir = out_.data(process),
          .tls_dir = tls_ ? out_.tls(role) : ""};
}

absl::Status LocalCluster::StartScheduler(const std::vector<std::string>& more_flags) {
  PAWL_ASSIGN_OR_RETURN(const std::string address, FreeLocalAddress());
  std::vector<std::string> flags = {absl::StrCat("--listen=", address),
                                    absl::StrCat("--data_dir=", out_.data("scheduler")),
                                    absl::StrCat("--job=", out_.job_file()),
                                    absl::StrCat("--servers=", servers_),
                                    absl::StrCat("--workers=", workers_),
                                    absl::StrCat("--lease_ms=", kLeaseMs),
                                    absl::StrCat("--address_file=", out_.address_file()),
                                    absl::StrCat("--tensorboard_dir=", out_.tensorboard()),
                                    absl::StrCat("--curve_file=", out_.curve_file())};
  flags.insert(flags.end(), more_flags.begin(), more_flags.end());
  if (tls_) flags.push_back(absl::StrCat("--tls_dir=", out_.tls("scheduler")));
  return Start({"scheduler", programs_.scheduler, std::move(flags), ""});
}

std::string LocalCluster::SchedulerAddress() const {
  std::ifstream file(out_.address_file());
  std::string address;
  std::getline(file, address);
  return address;
}

absl::Status LocalCluster::StartNodes(const std::string& scheduler_address) {
  scheduler_address_ = scheduler_address;
  while (next_server_ < servers_) PAWL_RETURN_IF_ERROR(StartServer());
  while (next_worker_ < workers_) PAWL_RETURN_IF_ERROR(StartWorker());
  return absl::OkStatus();
}

absl::Status LocalCluster::StartServer() {
  return Start(ServerCommand(programs_, Place(absl::StrCat("server-", next_server_++), "server")));
}

absl::Status LocalCluster::StartWorker() {
  const uint32_t number = next_worker_++;
  return Start(WorkerCommand(programs_, Place(absl::StrCat("worker-", number), "worker"), number,
                             devices_, worker_flags_));
}

uint32_t LocalCluster::CountStaying(const GetStatusResponse& status, Role role) {
  uint32_t staying = 0;
  std::set<std::string> own;
  for (ChildGroup::Child& child : group_.children()) {
    if (!absl::StartsWith(child.key, role == SERVER_ROLE ? "server-" : "worker-")) continue;
    if (named_.contains(child.key)) own.insert(child.process->name());
    // A process that has ended, but was not taken, may be restarted.
    bool leaves = child.taken && !child.start_again_at.has_value();
    for (const NodeStatus& node : status.nodes()) {
      if (!Describes(node, *child.process)) continue;
      own.insert(node.node());
      leaves = leaves || node.draining();
    }
    staying += !leaves;
  }
  for (const NodeStatus& node : status.nodes()) {
    staying +=
        node.role() == role && !node.gone() && !node.draining() && !own.contains(node.node());
  }
  return staying;
}

absl::Status LocalCluster::StartMissing(const GetStatusResponse& status) {
  const uint32_t servers = std::min(status.scale().servers(), kMaxLocalNodes);
  for (uint32_t staying = CountStaying(status, SERVER_ROLE); staying < servers; ++staying)
    PAWL_RETURN_IF_ERROR(StartServer());
  const uint32_t workers = std::min(status.scale().workers(), kMaxLocalNodes);
  for (uint32_t staying = CountStaying(status, WORKER_ROLE); staying < workers; ++staying)
    PAWL_RETURN_IF_ERROR(StartWorker());
  return absl::OkStatus();
}

void LocalCluster::NameNodes(const GetStatusResponse& status) {
  for (ChildGroup::Child& child : group_.children()) {
    if (named_.contains(child.key)) continue;
    for (const NodeStatus& node : status.nodes()) {
      if (!Describes(node, *child.process)) continue;
      // Failing to rename the log does no harm.
      child.process->Rename(node.node(), out_.log(node.node())).IgnoreError();
      named_.insert(child.key);
      break;
    }
  }
}

bool LocalCluster::HasWorker() {
  return std::any_of(group_.children().begin(), group_.children().end(),
                     [](ChildGroup::Child& child) {
                       return absl::StartsWith(child.key, "worker-") &&
                              (child.start_again_at.has_value() || !child.process->HasEnded());
                     });
}

bool LocalCluster::WasRegistered(const ChildProcess& child) {
  return named_.contains(group_.Find(child).key);
}

}  // namespace pawl
