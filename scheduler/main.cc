// pawl-scheduler: directs one job.
//
//   pawl-scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl --job=flights.pbtxt --servers=2 --workers=2
//
// It waits for its servers and workers, tells them who does what, notices who dies, and ends with the job, leaving
// metrics.json in --data_dir. Exit codes: 0 the job has completed or was stopped (SIGTERM, Ctrl-C, pawlctl);
// 1 the job has failed; 2 wrong flags, files or job.
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/rpc/grpc_settings.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "scheduler/coordinator.h"
#include "scheduler/grpc_server_caller.h"
#include "scheduler/metrics_file.h"
#include "scheduler/service.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7000",
          "host:port to listen on; port 0 takes a free one. Servers, workers and clients must be able to reach it.");
ABSL_FLAG(std::string, advertise, "",
          "host:port to write to --address_file, where it is not the one it listens on (as with 0.0.0.0)");
ABSL_FLAG(std::string, data_dir, "", "folder for metrics.json; made if missing");
ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(uint32_t, servers, 1, "servers that the job takes");
ABSL_FLAG(int32_t, workers, -1,
          "workers among which the ranks are shared; default: 1, and 0 for a job that only serves tables");
ABSL_FLAG(uint32_t, heartbeat_interval_ms, 200, "how often every node is to be heard of");
ABSL_FLAG(uint32_t, lease_ms, 1000, "a node that is silent for longer is dead, and the job fails");
ABSL_FLAG(std::string, address_file, "", "file that gets host:port as soon as the scheduler listens");
ABSL_FLAG(uint32_t, start_timeout_ms, 300000, "the job fails if its servers and workers are not there by then");
ABSL_FLAG(uint32_t, linger_ms, 5000,
          "how long at most to wait at the job's end for the nodes to hear of it and say good-bye");

namespace pawl {
namespace {

// The shortest heartbeat that is no burden, and the longest lease with which a death is still noticed.
constexpr uint32_t kMinHeartbeatIntervalMs = 10;
constexpr uint32_t kMaxLeaseMs = 600000;
// Calls under way get this long to end when the scheduler stops.
constexpr std::chrono::milliseconds kShutdownGrace{500};

uint64_t RandomJobId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

// The job as it will be run, and all that the flags say about it.
absl::StatusOr<Coordinator::Options> ReadOptions() {
  Coordinator::Options options;
  if (absl::GetFlag(FLAGS_job).empty()) return absl::InvalidArgumentError("--job=FILE is missing");
  PAWL_ASSIGN_OR_RETURN(options.job, ReadJobFile(absl::GetFlag(FLAGS_job)));
  const int32_t workers = absl::GetFlag(FLAGS_workers);
  if (workers < -1 || workers > static_cast<int32_t>(kMaxWorkers)) {
    return absl::InvalidArgumentError(absl::StrCat("--workers=", workers, " must be 0 to ", kMaxWorkers));
  }
  options.workers = workers >= 0 ? static_cast<uint32_t>(workers) : IsServeOnly(options.job) ? 0 : 1;
  if (options.workers == 0 && !IsServeOnly(options.job)) {
    return absl::InvalidArgumentError("--workers=0: a job that trains needs at least one worker");
  }
  options.servers = absl::GetFlag(FLAGS_servers);
  if (options.servers < 1 || options.servers > kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat("--servers=", options.servers, " must be 1 to ", kMaxServers));
  }
  const uint32_t heartbeat_interval_ms = absl::GetFlag(FLAGS_heartbeat_interval_ms);
  const uint32_t lease_ms = absl::GetFlag(FLAGS_lease_ms);
  if (heartbeat_interval_ms < kMinHeartbeatIntervalMs || lease_ms < uint64_t{2} * heartbeat_interval_ms ||
      lease_ms > kMaxLeaseMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heartbeat_interval_ms=", heartbeat_interval_ms, " --lease_ms=", lease_ms,
                     ": the interval must be at least ", kMinHeartbeatIntervalMs,
                     ", and the lease at least twice the interval and at most ", kMaxLeaseMs));
  }
  options.heartbeat_interval = std::chrono::milliseconds(heartbeat_interval_ms);
  options.lease = std::chrono::milliseconds(lease_ms);
  options.start_timeout = std::chrono::milliseconds(absl::GetFlag(FLAGS_start_timeout_ms));
  FillDefaults(options.job, options.workers);
  JobValidationOptions validation;
  validation.workers = options.workers;
  PAWL_RETURN_IF_ERROR(Annotate(ValidateJob(options.job, validation), absl::GetFlag(FLAGS_job)));
  options.job_id = RandomJobId();
  return options;
}

int Direct(EndSignal& signal) {
  absl::StatusOr<Coordinator::Options> options = ReadOptions();
  if (!options.ok()) return UsageError(options.status().message());
  const std::string data_dir = absl::GetFlag(FLAGS_data_dir);
  if (data_dir.empty()) return UsageError("--data_dir=FOLDER is missing");
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) return UsageError(absl::StrCat("--data_dir=", data_dir, " cannot be made: ", error.message()));
  const std::string metrics_path = (std::filesystem::path(data_dir) / "metrics.json").string();
  // A result that is older than this run is none.
  std::filesystem::remove(metrics_path, error);
  options->write_report = [metrics_path](const JobReport& report) {
    return WriteFileAtomically(metrics_path, MetricsJson(report));
  };
  const std::string listen = absl::GetFlag(FLAGS_listen);
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return UsageError(absl::StrCat("--listen=", listen, " is not host:port"));

  const std::string job_name = options->job.name();
  GrpcServerCaller servers;
  Coordinator coordinator(*std::move(options), Clock::Real(), servers);
  SchedulerService service(coordinator);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return UsageError(absl::StrCat("--listen=", listen,
                                   ": cannot listen there; is the port taken, or the host another machine's?"));
  }
  std::string address = absl::GetFlag(FLAGS_advertise);
  if (address.empty()) address = absl::StrCat(listen.substr(0, colon), ":", port);
  spdlog::info("job '{}': listening on {}", job_name, address);
  if (const std::string file = absl::GetFlag(FLAGS_address_file); !file.empty()) {
    if (const absl::Status status = WriteFileAtomically(file, address + "\n"); !status.ok()) {
      return UsageError(absl::StrCat("--address_file: ", status.message()));
    }
  }

  // The job is over, and everybody has heard of it or has had the time to.
  const Clock& clock = Clock::Real();
  while (!coordinator.over()) {
    if (signal.Wait(kTickInterval)) coordinator.Stop("the scheduler was asked to end");
    coordinator.Tick();
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  const MonotonicTime end = clock.Now() + std::chrono::milliseconds(absl::GetFlag(FLAGS_linger_ms));
  while (!coordinator.AllNodesGone() && clock.Now() < end) {
    std::this_thread::sleep_for(kTickInterval);
    coordinator.Tick();
  }
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  servers.Shutdown();
  const JobState state = coordinator.state();
  spdlog::info("ended: {}", JobState_Name(state));
  return state == FAILED ? kExitFailed : kExitDone;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon("pawl-scheduler",
                    "directs one job.\n\n"
                    "  pawl-scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl --job=flights.pbtxt --servers=2 "
                    "--workers=2\n\n"
                    "Exit codes: 0 the job has completed or was stopped; 1 the job has failed; 2 wrong flags, files or\n"
                    "job.",
                    argc, argv);
  pawl::EndSignal signal;
  return pawl::Direct(signal);
}
