#include "tests/harness/process_cluster.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "tests/harness/free_address.h"
#include "tests/harness/runfile.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kCallTimeout{2000};
constexpr size_t kLogTailLines = 25;
constexpr std::chrono::seconds kKillTimeout{10};
constexpr char kAnyLocalPort[] = "127.0.0.1:0";
// The port of a process that has a host of its own.
constexpr int kHostPort = 7000;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The role of a process's certificate. Senders that are not the cluster's own push as workers.
std::string TlsRole(const std::string& process) {
  const std::string role(*absl::StrSplit(process, '-').begin());
  return role == "scheduler" || role == "server" ? role : "worker";
}

MonotonicTime Now() { return Clock::Real().Now(); }

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessCluster>> ProcessCluster::Start(
    ProcessClusterOptions options) {
  std::unique_ptr<ProcessCluster> cluster(new ProcessCluster());
  if (const absl::Status status = cluster->StartAll(options); !status.ok()) {
    return Annotate(status, absl::StrCat("cannot start the cluster; its processes:\n",
                                         cluster->Describe(), "\nerror"));
  }
  return cluster;
}

absl::Status ProcessCluster::StartAll(const ProcessClusterOptions& options) {
  options_ = options;
  peer_names_.Set(getpid(), "test");
  PAWL_ASSIGN_OR_RETURN(folder_, MakeOutputFolder("cluster"));
  const std::string job_file = absl::StrCat(folder_, "/job.pbtxt");
  std::ofstream(job_file) << options.job
                          << (options.replicas.has_value()
                                  ? absl::StrCat("\nreplicas: ", *options.replicas, "\n")
                                  : "");
  const auto flags_of = [&](const std::string& name) {
    const auto found = options.flags.find(name);
    return found == options.flags.end() ? std::vector<std::string>() : found->second;
  };

  if (options.tls) {
    const std::string tls = absl::StrCat(folder_, "/tls");
    PAWL_RETURN_IF_ERROR(MakeTestCertificates(tls, "test"));
    if (!options.token_key.empty()) {
      PAWL_RETURN_IF_ERROR(
          MakeTestCertificates(tls, "test", {absl::StrCat("--token_key=", options.token_key)}));
    }
  }
  PAWL_ASSIGN_OR_RETURN(
      security_,
      Security::Open({.tls_dir = options.tls ? tls_dir("operator") : "", .insecure = !options.tls},
                     RoleSet(PeerRole::kOperator)));
  PAWL_ASSIGN_OR_RETURN(const std::string program, Runfile(options.scheduler_program));
  const std::string address_file = absl::StrCat(folder_, "/scheduler.addr");
  PAWL_ASSIGN_OR_RETURN(std::vector<std::string> arguments, ListenFlags("scheduler"));
  for (const std::string& argument :
       {absl::StrCat("--data_dir=", folder_, "/scheduler"), absl::StrCat("--job=", job_file),
        absl::StrCat("--servers=", options.servers),
        absl::StrCat("--workers=", options.expected_workers.value_or(options.workers)),
        absl::StrCat("--address_file=", address_file),
        absl::StrCat("--lease_ms=", options.lease.count())}) {
    arguments.push_back(argument);
  }
  for (const std::string& flag : flags_of("scheduler")) arguments.push_back(flag);
  PAWL_RETURN_IF_ERROR(Spawn("scheduler", program, std::move(arguments)));
  Eventually(
      [&] {
        std::ifstream file(address_file);
        std::getline(file, scheduler_address_);
        return !scheduler_address_.empty() || node("scheduler").HasEnded();
      },
      options_.start_timeout);
  if (scheduler_address_.empty()) {
    if (node("scheduler").HasEnded())
      return absl::FailedPreconditionError("the scheduler has ended");
    return absl::DeadlineExceededError("the scheduler does not listen");
  }
  const auto direct = direct_addresses_.find("scheduler");
  const std::string& address =
      direct == direct_addresses_.end() ? scheduler_address_ : direct->second;
  stub_ = Scheduler::NewStub(grpc::CreateCustomChannel(address,
                                                       security_->To(RoleSet(PeerRole::kScheduler)),
                                                       ChannelSettings(ChannelKind::kControl)));
  for (uint32_t i = 0; i < options.servers; ++i)
    PAWL_RETURN_IF_ERROR(AddServer(flags_of(absl::StrCat("server-", i))));
  for (uint32_t i = 0; i < options.workers; ++i)
    PAWL_RETURN_IF_ERROR(AddWorker(flags_of(absl::StrCat("worker-", i))));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ProcessCluster::ListenFlags(const std::string& name) {
  if (options_.network != nullptr) {
    PAWL_ASSIGN_OR_RETURN(const std::string host, options_.network->AddressOf(name));
    // A server finds out its own reachable address.
    if (name != "scheduler") return std::vector<std::string>();
    return std::vector<std::string>{absl::StrCat("--listen=", host, ":", kHostPort)};
  }
  if (!options_.fixed_ports && !options_.proxies) {
    return std::vector<std::string>{absl::StrCat("--listen=", kAnyLocalPort)};
  }
  PAWL_ASSIGN_OR_RETURN(const std::string address, FreeAddress());
  direct_addresses_[name] = address;
  std::vector<std::string> flags = {absl::StrCat("--listen=", address)};
  if (!options_.proxies) return flags;
  PAWL_ASSIGN_OR_RETURN(proxies_[name],
                        ByteProxy::Start({.target = address, .name_peer = [this](uint16_t port) {
                                            return peer_names_.NameOf(port);
                                          }}));
  flags.push_back(absl::StrCat("--advertise=", proxies_[name]->address()));
  return flags;
}

absl::Status ProcessCluster::Spawn(const std::string& name, const std::string& program,
                                   std::vector<std::string> arguments) {
  Process& process = processes_.emplace_back();
  process.name = name;
  process.program = program;
  process.arguments = std::move(arguments);
  // The hosts of a network are not this machine.
  if (options_.network != nullptr) process.arguments.push_back("--insecure");
  const auto found = options_.environment.find(name);
  absl::Status status = StartIncarnation(
      process, found == options_.environment.end() ? std::vector<std::string>() : found->second);
  if (!status.ok()) processes_.pop_back();
  return status;
}

absl::Status ProcessCluster::StartIncarnation(Process& process,
                                              std::vector<std::string> environment,
                                              const std::vector<std::string>& flags) {
  if (options_.tls)
    environment.push_back(absl::StrCat("PAWL_TLS_DIR=", tls_dir(TlsRole(process.name))));
  std::vector<std::string> command;
  if (options_.network != nullptr) {
    PAWL_RETURN_IF_ERROR(options_.network->AddressOf(process.name).status());
    command = NetworkNamespaces::CommandPrefix(process.name);
  }
  command.push_back(process.program);
  command.insert(command.end(), process.arguments.begin(), process.arguments.end());
  command.insert(command.end(), flags.begin(), flags.end());
  PAWL_ASSIGN_OR_RETURN(process.child,
                        ChildProcess::Start({process.name,
                                             command[0],
                                             {command.begin() + 1, command.end()},
                                             absl::StrCat(folder_, "/", process.name, ".log"),
                                             environment}));
  peer_names_.Set(process.child->pid(), process.name);
  return absl::OkStatus();
}

absl::Status ProcessCluster::AddProcess(const std::string& name, const std::string& program,
                                        const std::vector<std::string>& arguments) {
  PAWL_ASSIGN_OR_RETURN(const std::string path, Runfile(program));
  return Spawn(name, path, arguments);
}

absl::Status ProcessCluster::Kill(const std::string& name) {
  ChildProcess& child = node(name);
  child.Signal(SIGKILL);
  peer_names_.Remove(child.pid());
  if (child.WaitUntil(Now() + kKillTimeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(name, " does not end"));
}

absl::Status ProcessCluster::ReplaceDisk(const std::string& name) {
  if (const auto disk = disks_.find(name); disk != disks_.end()) return disk->second->Replace();
  std::error_code error;
  std::filesystem::remove_all(absl::StrCat(folder_, "/", name), error);
  if (error) return absl::UnavailableError(absl::StrCat(name, ": ", error.message()));
  return absl::OkStatus();
}

absl::Status ProcessCluster::DamageLog(const std::string& name) {
  const std::filesystem::path data = absl::StrCat(folder_, "/", name);
  std::error_code error;
  std::filesystem::remove_all(data / "damaged", error);
  if (error) return absl::UnavailableError(absl::StrCat(name, ": ", error.message()));
  std::filesystem::path oldest;
  for (const auto& entry : std::filesystem::directory_iterator(data / "log", error)) {
    if (oldest.empty() || entry.path() < oldest) oldest = entry.path();
  }
  if (error || oldest.empty())
    return absl::NotFoundError(absl::StrCat(name, " has no log: ", error.message()));
  std::fstream file(oldest, std::ios::in | std::ios::out | std::ios::binary);
  // Not at the end, where it would look like a write that a crash interrupted.
  const auto place = static_cast<std::streamoff>(std::filesystem::file_size(oldest, error) / 4);
  file.seekg(place);
  const char flipped = static_cast<char>(file.get() ^ 1);
  file.seekp(place);
  file.put(flipped);
  file.close();
  if (error || !file)
    return absl::UnavailableError(absl::StrCat(oldest.string(), ": cannot be damaged"));
  return absl::OkStatus();
}

void ProcessCluster::Pause(const std::string& name) {
  ChildProcess& child = node(name);
  child.Signal(SIGSTOP);
  // Threads on other processors run until the signal reaches them. The state follows the name in
  // parentheses.
  const std::string path = absl::StrCat("/proc/", child.pid(), "/stat");
  Eventually([&] { return ReadAll(path).find(") T ") != std::string::npos || child.HasEnded(); },
             kKillTimeout);
}

absl::Status ProcessCluster::Restart(const std::string& name,
                                     const std::vector<std::string>& environment,
                                     const std::vector<std::string>& flags) {
  Process& restarted = process(name);
  if (!restarted.child->HasEnded())
    return absl::FailedPreconditionError(absl::StrCat(name, " still runs"));
  const std::string log =
      absl::StrCat(folder_, "/", name, ".", ++restarted.former_incarnations, ".log");
  PAWL_RETURN_IF_ERROR(restarted.child->Rename(name, log));
  return StartIncarnation(restarted, environment, flags);
}

absl::StatusOr<std::string> ProcessCluster::WaitUntilMember(const std::string& name,
                                                            MonotonicDuration timeout) {
  ChildProcess& child = node(name);
  const std::string suffix = absl::StrCat(":", child.pid());
  const auto member = [&]() -> std::optional<absl::StatusOr<std::string>> {
    if (const auto status = GetStatus(); status.ok()) {
      for (const NodeStatus& registered : status->nodes()) {
        if (absl::EndsWith(registered.description(), suffix) && !registered.gone())
          return registered.node();
      }
    }
    if (child.HasEnded())
      return absl::FailedPreconditionError(absl::StrCat(name, " ", child.HowItEnded()));
    return std::nullopt;
  };
  return Eventually(member, timeout)
      .value_or(absl::DeadlineExceededError(
          absl::StrCat(name, " has not registered after ", Seconds(timeout), " s")));
}

ByteProxy& ProcessCluster::proxy(const std::string& name) { return *proxies_.at(name); }

absl::Status ProcessCluster::AddNode(const std::string& name, const std::string& program,
                                     std::vector<std::string> arguments) {
  PAWL_ASSIGN_OR_RETURN(const std::string path, Runfile(program));
  arguments.insert(arguments.begin(), absl::StrCat("--scheduler=", scheduler_address_));
  PAWL_RETURN_IF_ERROR(Spawn(name, path, std::move(arguments)));
  return WaitUntilRegistered(name);
}

absl::Status ProcessCluster::AddServer(const std::vector<std::string>& flags) {
  const std::string name = absl::StrCat("server-", servers_++);
  PAWL_ASSIGN_OR_RETURN(std::vector<std::string> arguments, ListenFlags(name));
  const std::string data_dir = absl::StrCat(folder_, "/", name);
  if (options_.server_disk_bytes > 0) {
    PAWL_ASSIGN_OR_RETURN(
        disks_[name], LoopDisk::Mount(data_dir + ".disk", data_dir, options_.server_disk_bytes));
  }
  arguments.push_back(absl::StrCat("--data_dir=", data_dir));
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return AddNode(name, options_.server_program, std::move(arguments));
}

absl::Status ProcessCluster::AddWorker(const std::vector<std::string>& flags) {
  return AddNode(absl::StrCat("worker-", workers_++), "worker/pawl-worker", flags);
}

absl::Status ProcessCluster::WaitUntilRegistered(const std::string& name) {
  ChildProcess& child = node(name);
  const std::string suffix = absl::StrCat(":", child.pid());
  const auto outcome = [&]() -> std::optional<absl::Status> {
    if (const auto status = GetStatus(); status.ok()) {
      for (const NodeStatus& registered : status->nodes()) {
        if (!absl::EndsWith(registered.description(), suffix)) continue;
        if (registered.node() == name) return absl::OkStatus();
        return absl::InternalError(absl::StrCat(name, " is registered as ", registered.node()));
      }
      if (status->state() == FAILED) return absl::FailedPreconditionError(status->failure());
      // A short job may complete before this check.
      if (status->state() == COMPLETED) return absl::OkStatus();
    }
    if (child.HasEnded()) {
      return child.Succeeded()
                 ? absl::OkStatus()
                 : absl::FailedPreconditionError(absl::StrCat(name, " ", child.HowItEnded()));
    }
    if (node("scheduler").HasEnded())
      return absl::FailedPreconditionError("the scheduler has ended");
    return std::nullopt;
  };
  return Eventually(outcome, options_.start_timeout)
      .value_or(absl::DeadlineExceededError(absl::StrCat(name, " has not registered")));
}

ProcessCluster::Process& ProcessCluster::process(const std::string& name) {
  for (Process& process : processes_) {
    if (process.name == name) return process;
  }
  std::abort();
}

ChildProcess& ProcessCluster::node(const std::string& name) { return *process(name).child; }

std::vector<std::string> ProcessCluster::names() const {
  std::vector<std::string> names;
  for (const Process& process : processes_) names.push_back(process.name);
  return names;
}

absl::StatusOr<GetStatusResponse> ProcessCluster::GetStatus() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  // gRPC reads a channel's sockets only during its synchronous calls, and a handshake needs
  // several reads: calls that fail at once would never let it end.
  context.set_wait_for_ready(true);
  GetStatusResponse response;
  const grpc::Status status = stub_->GetStatus(&context, GetStatusRequest(), &response);
  if (!status.ok())
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  return response;
}

absl::StatusOr<std::string> ProcessCluster::AddressOf(const std::string& server) {
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse status, GetStatus());
  for (const NodeStatus& registered : status.nodes()) {
    if (registered.node() == server) return registered.address();
  }
  return absl::NotFoundError(absl::StrCat("the scheduler does not know ", server));
}

absl::StatusOr<GetStatusResponse> ProcessCluster::WaitFor(
    const std::function<bool(const GetStatusResponse&)>& holds, MonotonicDuration timeout) {
  GetStatusResponse last;
  bool held = false;
  bool ended = false;
  const auto is_done = [&] {
    ended = node("scheduler").HasEnded();
    if (auto status = GetStatus(); status.ok()) {
      last = *std::move(status);
      held = holds(last);
    }
    return held || ended;
  };
  Eventually(is_done, timeout);
  if (held) return last;
  return absl::DeadlineExceededError(absl::StrCat(ended ? "the scheduler has ended" : "timeout",
                                                  "; the last status is ", last.ShortDebugString(),
                                                  "\n", Describe()));
}

absl::Status ProcessCluster::WaitUntilAllEnded(MonotonicDuration timeout) {
  const MonotonicTime deadline = Now() + timeout;
  std::vector<std::string> running;
  for (Process& process : processes_) {
    if (!process.child->WaitUntil(deadline)) running.push_back(process.name);
  }
  if (running.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "after ", Seconds(timeout), " s these processes still run: ", absl::StrJoin(running, ", "),
      "\n", Describe()));
}

absl::Status ProcessCluster::WaitForSuccess(MonotonicDuration timeout) {
  PAWL_RETURN_IF_ERROR(WaitUntilAllEnded(timeout));
  for (Process& process : processes_) {
    if (!process.child->Succeeded())
      return absl::FailedPreconditionError(absl::StrCat("some processes failed\n", Describe()));
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ProcessCluster::Metrics(const std::string& name) const {
  const std::string path = absl::StrCat(folder_, "/", name, "/metrics.json");
  const std::string text = ReadAll(path);
  if (text.empty()) return absl::NotFoundError(absl::StrCat("there is no ", path));
  nlohmann::json metrics = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  return metrics;
}

std::string ProcessCluster::Log(const std::string& name) const {
  return ReadAll(absl::StrCat(folder_, "/", name, ".log"));
}

std::string ProcessCluster::Describe() {
  std::string text;
  for (Process& process : processes_) {
    const std::string how = process.child->HasEnded() ? process.child->HowItEnded() : "runs";
    absl::StrAppend(&text, "--- ", process.name, " ", how, "\n");
    for (const std::string& line : process.child->LogTail(kLogTailLines))
      absl::StrAppend(&text, "    ", line, "\n");
  }
  return text;
}

}  // namespace pawl
