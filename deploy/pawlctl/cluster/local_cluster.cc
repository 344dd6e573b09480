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
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr char kSchedulerName[] = "pawl-scheduler";
constexpr char kServerName[] = "pawl-server";
constexpr char kWorkerName[] = "pawl-worker";
// pawl-worker's --device without a GPU.
constexpr char kCpu[] = "cpu";
// openssl takes well below a second.
constexpr std::chrono::seconds kCertificatesTime{30};
constexpr size_t kErrorLines = 20;
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

LocalCluster::LocalCluster(Programs programs, const OutFolder& out, uint32_t servers,
                           uint32_t workers, uint32_t max_restarts,
                           std::vector<std::string> devices, std::vector<std::string> worker_flags,
                           bool tls)
    : programs_(std::move(programs)),
      out_(out),
      servers_(servers),
      workers_(workers),
      restart_policy_(max_restarts),
      devices_(std::move(devices)),
      worker_flags_(std::move(worker_flags)),
      tls_(tls) {}

absl::Status LocalCluster::Start(const std::string& process, const std::string& program,
                                 std::vector<std::string> arguments,
                                 std::vector<std::string> environment) {
  const bool is_scheduler = children_.empty();
  if (tls_) {
    const std::string role(*absl::StrSplit(process, '-').begin());
    if (programs_.is_own_worker && program == programs_.worker) {
      environment.push_back(absl::StrCat("PAWL_TLS_DIR=", out_.tls(role)));
    } else {
      arguments.push_back(absl::StrCat("--tls_dir=", out_.tls(role)));
    }
  }
  // NameNodes names a node's log. Until then it must not have another node's name.
  const std::string log = out_.log(is_scheduler ? process : absl::StrCat("unnamed-", process));
  PAWL_ASSIGN_OR_RETURN(
      std::unique_ptr<ChildProcess> child,
      ChildProcess::Start({process, program, std::move(arguments), log, std::move(environment)}));
  children_.push_back({.key = process,
                       .process = std::move(child),
                       .started = Clock::Real().Now(),
                       .taken = false,
                       .named = is_scheduler});
  return absl::OkStatus();
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
  return Start("scheduler", programs_.scheduler, std::move(flags));
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
  const std::string process = absl::StrCat("server-", next_server_++);
  return Start(
      process, programs_.server,
      {absl::StrCat("--scheduler=", scheduler_address_), absl::StrCat("--listen=", kAnyLocalPort),
       absl::StrCat("--data_dir=", out_.data(process))});
}

absl::Status LocalCluster::StartWorker() {
  const uint32_t number = next_worker_++;
  const std::string process = absl::StrCat("worker-", number);
  if (programs_.is_own_worker) {
    return Start(process, programs_.worker, worker_flags_,
                 {absl::StrCat("PAWL_SCHEDULER=", scheduler_address_),
                  absl::StrCat("PAWL_WORKER_DIR=", out_.data(process))});
  }
  std::vector<std::string> flags = {absl::StrCat("--scheduler=", scheduler_address_),
                                    absl::StrCat("--data_dir=", out_.data(process))};
  flags.insert(flags.end(), worker_flags_.begin(), worker_flags_.end());
  std::vector<std::string> environment;
  if (!devices_.empty()) {
    const std::string& device = devices_[number % devices_.size()];
    flags.push_back(absl::StrCat("--device=", device));
    uint32_t sharing = 0;
    for (uint32_t other = 0; other < number; ++other)
      sharing += devices_[other % devices_.size()] == device;
    // NCCL refuses two ranks on one GPU of one host. With --collectives=nccl the second worker of a
    // GPU claims to be on another host.
    if (sharing > 0 && device != kCpu)
      environment.push_back(absl::StrCat("NCCL_HOSTID=pawl-", sharing));
  }
  return Start(process, programs_.worker, std::move(flags), std::move(environment));
}

uint32_t LocalCluster::CountStaying(const GetStatusResponse& status, Role role) {
  uint32_t staying = 0;
  std::set<std::string> own;
  for (Child& child : children_) {
    if (!absl::StartsWith(child.key, role == SERVER_ROLE ? "server-" : "worker-")) continue;
    if (child.named) own.insert(child.process->name());
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
  for (Child& child : children_) {
    if (child.named) continue;
    for (const NodeStatus& node : status.nodes()) {
      if (!Describes(node, *child.process)) continue;
      // Failing to rename the log does no harm.
      child.process->Rename(node.node(), out_.log(node.node())).IgnoreError();
      child.named = true;
      break;
    }
  }
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

bool LocalCluster::HasWorker() {
  return std::any_of(children_.begin(), children_.end(), [](Child& child) {
    return absl::StartsWith(child.key, "worker-") &&
           (child.start_again_at.has_value() || !child.process->HasEnded());
  });
}

size_t LocalCluster::Running() {
  size_t running = 0;
  for (Child& child : children_) running += !child.process->HasEnded();
  return running;
}

void LocalCluster::SignalAll(int signal) {
  for (Child& child : children_) child.process->Signal(signal);
}

LocalCluster::Child& LocalCluster::Find(const ChildProcess& process) {
  for (Child& child : children_) {
    if (child.process.get() == &process) return child;
  }
  std::abort();
}

bool LocalCluster::WasRegistered(const ChildProcess& child) { return Find(child).named; }

std::optional<MonotonicDuration> LocalCluster::Restart(const ChildProcess& ended,
                                                       MonotonicTime now) {
  Child& child = Find(ended);
  const std::optional<MonotonicDuration> delay =
      restart_policy_.OnDeath(child.key, now - child.started);
  if (delay.has_value()) child.start_again_at = now + *delay;
  return delay;
}

absl::Status LocalCluster::StartDue(MonotonicTime now) {
  absl::Status result;
  for (Child& child : children_) {
    if (!child.start_again_at.has_value() || *child.start_again_at > now) continue;
    child.start_again_at.reset();
    ChildOptions options = child.process->options();
    options.append_to_log = true;
    absl::StatusOr<std::unique_ptr<ChildProcess>> process = ChildProcess::Start(std::move(options));
    if (!process.ok()) {
      if (result.ok()) result = process.status();
      continue;
    }
    child.process = *std::move(process);
    child.started = now;
    child.taken = false;
  }
  return result;
}

std::optional<MonotonicTime> LocalCluster::next_start() const {
  std::optional<MonotonicTime> next;
  for (const Child& child : children_) {
    if (child.start_again_at.has_value())
      next = std::min(next.value_or(*child.start_again_at), *child.start_again_at);
  }
  return next;
}

void LocalCluster::CancelRestarts() {
  for (Child& child : children_) child.start_again_at.reset();
}

std::map<std::string, uint32_t> LocalCluster::Restarts() const {
  std::map<std::string, uint32_t> restarts;
  for (const Child& child : children_)
    restarts[child.process->name()] += restart_policy_.restarts_of(child.key);
  return restarts;
}

}  // namespace pawl
