// pawl-server: holds a share of a job's parameters and answers pushes and pulls.
//
//   pawl-server --scheduler=10.0.0.1:7000 --listen=10.0.0.2:0 --data_dir=/var/lib/pawl
//
// It registers with the scheduler, which tells it which partitions it has, and
// serves until the job ends. Exit codes: 0 the job has completed or was stopped, or this
// process was asked to end (SIGTERM, Ctrl-C); 1 the job has failed, or the
// scheduler cannot be reached; 2 wrong usage.
#include <malloc.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/rpc/grpc_settings.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "server/control_service.h"
#include "server/data_plane.h"
#include "server/parameter_service.h"
#include "server/scheduler_link.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(std::string, scheduler, "", "host:port of the scheduler; default: the environment's PAWL_SCHEDULER");
ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "host:port to listen on; port 0 takes a free one. Workers must be able to reach this address.");
ABSL_FLAG(std::string, advertise, "", "host:port that workers reach this server at, where it is not the one it listens on");
ABSL_FLAG(std::string, data_dir, "", "folder for this server's files; made if missing");
ABSL_FLAG(int, register_timeout_s, 60, "how long to try to reach the scheduler");
ABSL_FLAG(int64_t, max_bytes_in_flight, int64_t{2} << 30,
          "bytes of requests and answers being worked on; beyond it requests are refused for a moment");
ABSL_FLAG(int64_t, max_rows_per_partition, int64_t{1} << 26, "rows in one partition, all tables together");

namespace pawl {
namespace {

// How often waiting calls are looked through for passed deadlines.
constexpr std::chrono::milliseconds kExpiryInterval{20};
// Between tries to reach a scheduler that may not have started yet.
constexpr std::chrono::milliseconds kRegisterInterval{200};
// Calls under way get this long to end when the server stops.
constexpr std::chrono::seconds kShutdownGrace{2};

// Tells the job's end to the main thread. Thread-safe.
class EndOfJob {
 public:
  void Set(absl::Status status) {
    MutexLock lock(mu_);
    status_ = std::move(status);
  }
  std::optional<absl::Status> Get() {
    MutexLock lock(mu_);
    return status_;
  }

 private:
  Mutex mu_;
  std::optional<absl::Status> status_ PAWL_GUARDED_BY(mu_);
};

int Serve(const std::string& scheduler, EndSignal& signal) {
  const Clock& clock = Clock::Real();
  const std::string listen = absl::GetFlag(FLAGS_listen);
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) return UsageError(absl::StrCat("--listen=", listen, " is not host:port"));
  if (scheduler.find(':') == std::string::npos) {
    return UsageError(absl::StrCat("--scheduler=", scheduler, " is not host:port"));
  }
  if (absl::GetFlag(FLAGS_max_bytes_in_flight) < 1) return UsageError("--max_bytes_in_flight must be at least 1");
  if (absl::GetFlag(FLAGS_max_rows_per_partition) < 1) return UsageError("--max_rows_per_partition must be at least 1");
  if (absl::GetFlag(FLAGS_register_timeout_s) < 0) return UsageError("--register_timeout_s must be at least 0");
  if (const std::string data_dir = absl::GetFlag(FLAGS_data_dir); !data_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(data_dir, error);
    if (error) return UsageError(absl::StrCat("--data_dir=", data_dir, " cannot be made: ", error.message()));
  }

  DataPlaneOptions options;
  options.max_bytes_in_flight = absl::GetFlag(FLAGS_max_bytes_in_flight);
  options.max_rows_per_partition = absl::GetFlag(FLAGS_max_rows_per_partition);
  DataPlane data_plane(options, clock);
  ParameterService parameter_service(data_plane, clock);
  ControlService control_service(data_plane);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&parameter_service);
  builder.RegisterService(&control_service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return UsageError(absl::StrCat("--listen=", listen, ": cannot listen there; is the port taken, or the host another machine's?"));
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  std::string address = absl::GetFlag(FLAGS_advertise);
  if (address.empty()) address = absl::StrCat(listen.substr(0, colon), ":", port);
  spdlog::info("listening on {}, registering with the scheduler at {}", address, scheduler);

  EndOfJob end;
  bool asked_to_end = false;
  absl::Status result;
  {
    SchedulerLink link(scheduler, clock);
    const MonotonicTime give_up = clock.Now() + std::chrono::seconds(absl::GetFlag(FLAGS_register_timeout_s));
    absl::StatusOr<RegisterResponse> registration = link.Register(address, ProcessDescription());
    while ((absl::IsUnavailable(registration.status()) || absl::IsDeadlineExceeded(registration.status())) &&
           clock.Now() < give_up && !asked_to_end) {
      asked_to_end = signal.Wait(kRegisterInterval);
      registration = link.Register(address, ProcessDescription());
    }
    if (registration.ok()) {
      spdlog::info("registered as {}, incarnation {}, for job '{}'", registration->node(), registration->incarnation(),
                   registration->job().name());
      data_plane.Begin(*registration);
      link.Start({
          .counters = [&] { return data_plane.Counters(/*may_be_old=*/true); },
          .routing =
              [&](const RoutingTable& routing) {
                data_plane.AdoptRouting(routing);
                server->GetHealthCheckService()->SetServingStatus(true);
              },
          .ended =
              [&](absl::Status status) {
                data_plane.Close(status.ok() ? absl::UnavailableError("the job has completed") : status);
                end.Set(std::move(status));
              },
      });
      std::optional<absl::Status> ended;
      while (!asked_to_end && !(ended = end.Get()).has_value()) {
        asked_to_end = signal.Wait(kExpiryInterval);
        data_plane.Tick();
      }
      if (ended.has_value()) result = *ended;
    } else {
      result = registration.status();
    }
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  data_plane.Close(absl::UnavailableError("the server is ending"));
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  if (result.ok() || absl::IsCancelled(result) || asked_to_end) {
    spdlog::info("ended{}", result.ok() ? "" : absl::StrCat(": ", result.message()));
    return kExitDone;
  }
  spdlog::error("ended: {}", result.ToString());
  return kExitFailed;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon("pawl-server",
                    "holds a share of a job's parameters and answers pushes and pulls.\n\n"
                    "  pawl-server --scheduler=10.0.0.1:7000 --listen=10.0.0.2:0 --data_dir=/var/lib/pawl\n\n"
                    "Exit codes: 0 the job has completed or was stopped, or this process was asked to end; 1 the job\n"
                    "has failed or the scheduler cannot be reached; 2 wrong usage.",
                    argc, argv);
  const std::string scheduler = pawl::SchedulerAddress(absl::GetFlag(FLAGS_scheduler));
  if (scheduler.empty()) return pawl::UsageError("--scheduler=host:port is missing, and PAWL_SCHEDULER is not set");
  // Requests of megabytes come and go all the time: their memory is kept instead
  // of being given back to the kernel and zeroed again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  pawl::EndSignal signal;
  return pawl::Serve(scheduler, signal);
}
