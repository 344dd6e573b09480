// Stands in for pawl-scheduler, pawl-server and pawl-worker in pawlctl's tests. It runs under each
// of these names and implements the rpcs of proto/scheduler.proto that pawlctl uses. The
// environment variable PAWL_FAKE selects a failure:
//
//   scheduler-exits         exits with code 3 before it listens
//   scheduler-never-listens
//   scheduler-dies          dies by SIGKILL while the job runs
//   scheduler-dies-once     the same, in its first incarnation only
//   scheduler-refuses-stop  answers StopJob with an error
//   server-exits            exits with code 3 before it registers
//   server-dies-unknown     dies by SIGKILL once it is registered, and then before it registers
//   worker-dies             worker-0 dies by SIGKILL whenever the job runs
//   worker-dies-once        the same, in its first incarnation only
//   worker-leaves           worker-0 exits with code 0 once the job runs; the scheduler then
//                           fails the job
//   worker-leaves-badly     exits with code 5 after the job has completed
//   job-fails               the scheduler fails the job
//   no-result               the scheduler writes no metrics.json
//   runs-forever            the job does not end by itself
//   nodes-stay              servers and workers ignore the job's end and SIGTERM
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/mutex.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// Short, since nothing is computed, but long enough for pawlctl to ask for the status.
constexpr milliseconds kTick{20};
constexpr milliseconds kRunTime{1500};
constexpr milliseconds kLease{1000};
constexpr milliseconds kLinger{500};

bool Fake(const std::string& what) {
  const char* value = std::getenv("PAWL_FAKE");
  return value != nullptr && what == value;
}

std::string Argument(int argc, char** argv, const std::string& name) {
  const std::string prefix = absl::StrCat("--", name, "=");
  for (int i = 1; i < argc; ++i) {
    if (absl::StartsWith(argv[i], prefix)) return std::string(argv[i]).substr(prefix.size());
  }
  return "";
}

std::atomic<bool> terminated = false;

// Whether this is the first call for the folder, across all incarnations of the process.
bool IsFirst(const std::string& data, const std::string& what) {
  const std::string file = absl::StrCat(data, "/", what);
  if (std::filesystem::exists(file)) return false;
  std::filesystem::create_directories(data);
  std::ofstream(file) << "been here\n";
  return true;
}

class FakeScheduler final : public Scheduler::Service {
 public:
  FakeScheduler(int servers, int workers, const std::string& data)
      : servers_(servers), workers_(workers) {
    // The state of its earlier incarnation.
    if (!Fake("scheduler-dies-once") || IsFirst(data, "started")) return;
    status_.set_state(RUNNING);
    running_since_ = SteadyClock::now();
    dies_ = false;
  }

  grpc::Status Register(grpc::ServerContext*, const RegisterRequest* request,
                        RegisterResponse* response) override {
    const MutexLock lock(mu_);
    for (NodeStatus& known : *status_.mutable_nodes()) {
      if (known.node() != request->node()) continue;
      known.set_description(request->description());
      last_heard_[known.node()] = SteadyClock::now();
      response->set_node(known.node());
      return grpc::Status::OK;
    }
    NodeStatus& node = *status_.add_nodes();
    int& number = numbers_[request->role()];
    node.set_node(absl::StrCat(request->role() == SERVER_ROLE ? "server-" : "worker-", number++));
    node.set_role(request->role());
    node.set_description(request->description());
    last_heard_[node.node()] = SteadyClock::now();
    response->set_node(node.node());
    if (numbers_[SERVER_ROLE] == servers_ && numbers_[WORKER_ROLE] == workers_) {
      status_.set_state(RUNNING);
      running_since_ = SteadyClock::now();
    }
    return grpc::Status::OK;
  }

  grpc::Status Heartbeat(grpc::ServerContext*, const HeartbeatRequest* request,
                         HeartbeatResponse* response) override {
    const MutexLock lock(mu_);
    last_heard_[request->node()] = SteadyClock::now();
    response->set_job_state(status_.state());
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*,
                         GetStatusResponse* response) override {
    const MutexLock lock(mu_);
    *response = status_;
    return grpc::Status::OK;
  }

  grpc::Status ListTables(grpc::ServerContext*, const ListTablesRequest*,
                          ListTablesResponse* response) override {
    TableSpec& table = *response->add_tables();
    table.set_id(1);
    table.set_name("embeddings");
    table.set_kind(SPARSE);
    table.set_row_width(9);
    return grpc::Status::OK;
  }

  grpc::Status StopJob(grpc::ServerContext*, const StopJobRequest* request,
                       StopJobResponse*) override {
    if (Fake("scheduler-refuses-stop")) return {grpc::StatusCode::INTERNAL, "no"};
    const MutexLock lock(mu_);
    std::cout << "stopped: " << request->reason() << std::endl;
    status_.set_state(STOPPED);
    return grpc::Status::OK;
  }

  // Advances the job by a tick. Returns true when the job has ended.
  bool Tick() {
    const MutexLock lock(mu_);
    const auto now = SteadyClock::now();
    if (status_.state() == RUNNING) {
      status_.set_steps(status_.steps() + 1);
      status_.set_steps_total(Fake("runs-forever") ? 100000 : 1000);
      status_.set_samples(status_.samples() + 1000);
      status_.set_loss(0.5);
      status_.mutable_job()->set_epochs(2);
      if (status_.evaluations().empty()) {
        EvaluationResult& result = *status_.add_evaluations();
        result.set_evaluation(1);
        result.set_step(status_.steps());
        result.set_auc(0.7216);
        UserMetric& metric = *status_.add_metrics();
        metric.set_name("val/ctr");
        metric.set_step(40);
        metric.set_value(0.25);
      }
      const bool time_is_up = now - running_since_ >= kRunTime;
      if (time_is_up && (Fake("scheduler-dies") || (Fake("scheduler-dies-once") && dies_))) {
        std::cerr << "the disk is on fire" << std::endl;
        raise(SIGKILL);
      }
      for (const auto& [node, heard] : last_heard_) {
        if (now - heard < kLease) continue;
        status_.set_state(FAILED);
        status_.set_failure(absl::StrCat(node, " has not been heard of"));
      }
      if (time_is_up && Fake("job-fails")) {
        status_.set_state(FAILED);
        status_.set_failure("worker-0: flights.csv:7:3 is not a number");
      }
      if (time_is_up && status_.state() == RUNNING && !Fake("runs-forever") &&
          !Fake("scheduler-refuses-stop")) {
        status_.set_state(COMPLETED);
      }
    }
    return status_.state() == COMPLETED || status_.state() == FAILED || status_.state() == STOPPED;
  }

  GetStatusResponse status() {
    const MutexLock lock(mu_);
    return status_;
  }

 private:
  const int servers_;
  const int workers_;
  bool dies_ = true;
  Mutex mu_;
  GetStatusResponse status_ PAWL_GUARDED_BY(mu_) = [] {
    GetStatusResponse status;
    status.set_state(STARTING);
    status.mutable_job()->set_name("fake");
    return status;
  }();
  std::map<Role, int> numbers_ PAWL_GUARDED_BY(mu_);
  std::map<std::string, SteadyClock::time_point> last_heard_ PAWL_GUARDED_BY(mu_);
  SteadyClock::time_point running_since_ PAWL_GUARDED_BY(mu_);
};

int RunScheduler(int argc, char** argv) {
  std::cout << "the fake scheduler begins" << std::endl;
  if (Fake("scheduler-exits")) {
    std::cerr << "the port is taken" << std::endl;
    return 3;
  }
  FakeScheduler service(std::atoi(Argument(argc, argv, "servers").c_str()),
                        std::atoi(Argument(argc, argv, "workers").c_str()),
                        Argument(argc, argv, "data_dir"));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(Argument(argc, argv, "listen"), grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string data = Argument(argc, argv, "data_dir"),
                    address_file = Argument(argc, argv, "address_file");
  std::filesystem::create_directories(data);
  if (!Fake("scheduler-never-listens")) {
    std::ofstream(address_file + ".tmp") << "127.0.0.1:" << port << "\n";
    std::filesystem::rename(address_file + ".tmp", address_file);
  }
  while (!service.Tick() && !terminated) std::this_thread::sleep_for(kTick);
  const GetStatusResponse status = service.status();
  if (!Fake("no-result") && !terminated) {
    std::ofstream(data + "/metrics.json")
        << "{\"job\": \"fake\", \"state\": \"" << JobState_Name(status.state())
        << "\", \"failure\": \"" << status.failure()
        << "\", \"steps\": 20, \"samples\": 20000, \"samples_per_s\": 50000.0, \"wall_s\": 0.4, "
        << "\"eval\": {\"auc\": 0.7216}, \"digest\": \"000000ab\", \"staleness_max\": 3}\n";
  }
  const auto linger_until = SteadyClock::now() + kLinger;
  while (!terminated && SteadyClock::now() < linger_until) std::this_thread::sleep_for(kTick);
  server->Shutdown(std::chrono::system_clock::now() + kLinger);
  return status.state() == COMPLETED ? 0 : 1;
}

int RunNode(int argc, char** argv, Role role) {
  std::cout << "the fake " << Role_Name(role) << " begins" << std::endl;
  if (Fake("server-exits") && role == SERVER_ROLE) {
    std::cerr << "no memory left" << std::endl;
    return 3;
  }
  const std::string data = Argument(argc, argv, "data_dir");
  if (Fake("server-dies-unknown") && role == SERVER_ROLE && !IsFirst(data, "started"))
    raise(SIGKILL);
  const auto stub = Scheduler::NewStub(
      grpc::CreateChannel(Argument(argc, argv, "scheduler"), grpc::InsecureChannelCredentials()));
  RegisterRequest registration;
  registration.set_role(role);
  registration.set_description(absl::StrCat("here:", getpid()));
  std::string former;
  std::getline(std::ifstream(data + "/node"), former);
  registration.set_node(former);
  RegisterResponse registered;
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    if (!stub->Register(&context, registration, &registered).ok()) return 4;
  }
  std::filesystem::create_directories(data);
  std::ofstream(data + "/node") << registered.node() << "\n";
  const bool stays = Fake("nodes-stay");
  while (!terminated || stays) {
    std::this_thread::sleep_for(kTick);
    HeartbeatRequest heartbeat;
    heartbeat.set_node(registered.node());
    HeartbeatResponse response;
    grpc::ClientContext context;
    // gRPC's synchronous client connects only while a call waits.
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    if (!stub->Heartbeat(&context, heartbeat, &response).ok()) continue;
    if (response.job_state() == RUNNING && registered.node() == "worker-0") {
      if (Fake("worker-dies") || (Fake("worker-dies-once") && IsFirst(data, "died"))) {
        std::cerr << "out of luck" << std::endl;
        raise(SIGKILL);
      }
      if (Fake("worker-leaves")) return 0;
    }
    if (response.job_state() == RUNNING && Fake("server-dies-unknown") &&
        registered.node() == "server-0")
      raise(SIGKILL);
    if (stays) continue;
    if (response.job_state() == COMPLETED && Fake("worker-leaves-badly") && role == WORKER_ROLE)
      return 5;
    if (response.job_state() == COMPLETED) return 0;
    if (response.job_state() == FAILED || response.job_state() == STOPPED) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  signal(SIGTERM, [](int) { pawl::terminated = true; });
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (name == "pawl-scheduler") return pawl::RunScheduler(argc, argv);
  return pawl::RunNode(argc, argv, name == "pawl-server" ? pawl::SERVER_ROLE : pawl::WORKER_ROLE);
}
