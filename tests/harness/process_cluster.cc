#include "tests/harness/process_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

// Between two looks at a condition that nobody announces.
constexpr std::chrono::milliseconds kPollInterval{5};
constexpr std::chrono::milliseconds kCallTimeout{2000};
constexpr size_t kLogTailLines = 25;
constexpr char kAnyLocalPort[] = "127.0.0.1:0";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

MonotonicTime Now() { return Clock::Real().Now(); }

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessCluster>> ProcessCluster::Start(ProcessClusterOptions options) {
  std::unique_ptr<ProcessCluster> cluster(new ProcessCluster());
  if (const absl::Status status = cluster->StartAll(options); !status.ok()) {
    return Annotate(status, absl::StrCat("cannot start the cluster; its processes:\n", cluster->Describe(), "\nerror"));
  }
  return cluster;
}

absl::Status ProcessCluster::StartAll(const ProcessClusterOptions& options) {
  start_timeout_ = options.start_timeout;
  PAWL_ASSIGN_OR_RETURN(folder_, MakeOutputFolder("cluster"));
  const std::string job_file = absl::StrCat(folder_, "/job.pbtxt");
  std::ofstream(job_file) << options.job;
  const auto flags_of = [&](const std::string& name) {
    const auto found = options.flags.find(name);
    return found == options.flags.end() ? std::vector<std::string>() : found->second;
  };

  PAWL_ASSIGN_OR_RETURN(const std::string program, Runfile("scheduler/pawl-scheduler"));
  const std::string address_file = absl::StrCat(folder_, "/scheduler.addr");
  std::vector<std::string> arguments = {
      absl::StrCat("--listen=", kAnyLocalPort),
      absl::StrCat("--data_dir=", folder_, "/scheduler"),
      absl::StrCat("--job=", job_file),
      absl::StrCat("--servers=", options.servers),
      absl::StrCat("--workers=", options.expected_workers.value_or(options.workers)),
      absl::StrCat("--address_file=", address_file)};
  for (const std::string& flag : flags_of("scheduler")) arguments.push_back(flag);
  PAWL_RETURN_IF_ERROR(Spawn("scheduler", program, std::move(arguments)));
  const MonotonicTime deadline = Now() + start_timeout_;
  while (scheduler_address_.empty()) {
    std::ifstream file(address_file);
    std::getline(file, scheduler_address_);
    if (!scheduler_address_.empty()) break;
    if (node("scheduler").HasEnded()) return absl::FailedPreconditionError("the scheduler has ended");
    if (Now() > deadline) return absl::DeadlineExceededError("the scheduler does not listen");
    std::this_thread::sleep_for(kPollInterval);
  }
  stub_ = Scheduler::NewStub(grpc::CreateCustomChannel(scheduler_address_, grpc::InsecureChannelCredentials(),
                                                       ChannelSettings(ChannelKind::kControl)));
  for (uint32_t i = 0; i < options.servers; ++i) PAWL_RETURN_IF_ERROR(AddServer(flags_of(absl::StrCat("server-", i))));
  for (uint32_t i = 0; i < options.workers; ++i) PAWL_RETURN_IF_ERROR(AddWorker(flags_of(absl::StrCat("worker-", i))));
  return absl::OkStatus();
}

absl::Status ProcessCluster::Spawn(const std::string& name, const std::string& program,
                                   std::vector<std::string> arguments) {
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child,
                        ChildProcess::Start({name, program, std::move(arguments), absl::StrCat(folder_, "/", name, ".log")}));
  processes_.push_back({name, std::move(child)});
  return absl::OkStatus();
}

absl::Status ProcessCluster::AddNode(const std::string& name, const std::string& program,
                                     std::vector<std::string> arguments) {
  PAWL_ASSIGN_OR_RETURN(const std::string path, Runfile(program));
  arguments.insert(arguments.begin(), absl::StrCat("--scheduler=", scheduler_address_));
  PAWL_RETURN_IF_ERROR(Spawn(name, path, std::move(arguments)));
  return WaitUntilRegistered(name);
}

absl::Status ProcessCluster::AddServer(const std::vector<std::string>& flags) {
  const std::string name = absl::StrCat("server-", servers_++);
  std::vector<std::string> arguments = {absl::StrCat("--listen=", kAnyLocalPort),
                                        absl::StrCat("--data_dir=", folder_, "/", name)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return AddNode(name, "server/pawl-server", std::move(arguments));
}

absl::Status ProcessCluster::AddWorker(const std::vector<std::string>& flags) {
  return AddNode(absl::StrCat("worker-", workers_++), "worker/pawl-worker", flags);
}

absl::Status ProcessCluster::WaitUntilRegistered(const std::string& name) {
  ChildProcess& child = node(name);
  const std::string suffix = absl::StrCat(":", child.pid());
  const MonotonicTime deadline = Now() + start_timeout_;
  while (true) {
    if (const auto status = GetStatus(); status.ok()) {
      for (const NodeStatus& registered : status->nodes()) {
        if (!absl::EndsWith(registered.description(), suffix)) continue;
        if (registered.node() == name) return absl::OkStatus();
        return absl::InternalError(absl::StrCat(name, " is registered as ", registered.node()));
      }
      if (status->state() == FAILED) return absl::FailedPreconditionError(status->failure());
      // A short job may be over before it is looked at.
      if (status->state() == COMPLETED) return absl::OkStatus();
    }
    if (child.HasEnded()) {
      return child.Succeeded() ? absl::OkStatus()
                               : absl::FailedPreconditionError(absl::StrCat(name, " ", child.HowItEnded()));
    }
    if (node("scheduler").HasEnded()) return absl::FailedPreconditionError("the scheduler has ended");
    if (Now() > deadline) return absl::DeadlineExceededError(absl::StrCat(name, " has not registered"));
    std::this_thread::sleep_for(kPollInterval);
  }
}

ChildProcess& ProcessCluster::node(const std::string& name) {
  for (Process& process : processes_) {
    if (process.name == name) return *process.child;
  }
  std::abort();
}

std::vector<std::string> ProcessCluster::names() const {
  std::vector<std::string> names;
  for (const Process& process : processes_) names.push_back(process.name);
  return names;
}

absl::StatusOr<GetStatusResponse> ProcessCluster::GetStatus() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  GetStatusResponse response;
  const grpc::Status status = stub_->GetStatus(&context, GetStatusRequest(), &response);
  if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  return response;
}

absl::StatusOr<std::string> ProcessCluster::AddressOf(const std::string& server) {
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse status, GetStatus());
  for (const NodeStatus& registered : status.nodes()) {
    if (registered.node() == server) return registered.address();
  }
  return absl::NotFoundError(absl::StrCat("the scheduler knows no ", server));
}

absl::StatusOr<GetStatusResponse> ProcessCluster::WaitFor(const std::function<bool(const GetStatusResponse&)>& holds,
                                                          MonotonicDuration timeout) {
  const MonotonicTime deadline = Now() + timeout;
  GetStatusResponse last;
  while (true) {
    const bool ended = node("scheduler").HasEnded();
    if (auto status = GetStatus(); status.ok()) {
      if (holds(*status)) return *std::move(status);
      last = *std::move(status);
    }
    if (ended || Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(ended ? "the scheduler has ended" : "time is over", "; the last status is ",
                                                      last.ShortDebugString(), "\n", Describe()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

absl::Status ProcessCluster::WaitUntilAllEnded(MonotonicDuration timeout) {
  const MonotonicTime deadline = Now() + timeout;
  std::vector<std::string> running;
  for (Process& process : processes_) {
    if (!process.child->WaitUntil(deadline)) running.push_back(process.name);
  }
  if (running.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("after ", Seconds(timeout), " s these still run: ", absl::StrJoin(running, ", "), "\n", Describe()));
}

absl::Status ProcessCluster::WaitForSuccess(MonotonicDuration timeout) {
  PAWL_RETURN_IF_ERROR(WaitUntilAllEnded(timeout));
  for (Process& process : processes_) {
    if (!process.child->Succeeded()) return absl::FailedPreconditionError(absl::StrCat("not all succeeded\n", Describe()));
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ProcessCluster::Metrics() const {
  const std::string path = absl::StrCat(folder_, "/scheduler/metrics.json");
  const std::string text = ReadAll(path);
  if (text.empty()) return absl::NotFoundError(absl::StrCat("there is no ", path));
  nlohmann::json metrics = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!metrics.is_object()) return absl::DataLossError(absl::StrCat(path, " is no JSON object"));
  return metrics;
}

std::string ProcessCluster::Log(const std::string& name) const { return ReadAll(absl::StrCat(folder_, "/", name, ".log")); }

std::string ProcessCluster::Describe() {
  std::string text;
  for (Process& process : processes_) {
    const std::string how = process.child->HasEnded() ? process.child->HowItEnded() : "runs";
    absl::StrAppend(&text, "--- ", process.name, " ", how, "\n");
    for (const std::string& line : process.child->LogTail(kLogTailLines)) absl::StrAppend(&text, "    ", line, "\n");
  }
  return text;
}

}  // namespace pawl
