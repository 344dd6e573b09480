// pawl-server: holds a share of a job's parameters and answers pushes and pulls.
//
//   pawl-server --scheduler=10.0.0.1:7000 --data_dir=/var/lib/pawl
//
// It registers with the scheduler, which tells it which partitions it has, and
// serves until the job ends. It may come while the job runs, and leave it. Exit codes: 0 the job
// has completed or was stopped, or this process was asked to end (SIGTERM, Ctrl-C, pawlctl drain);
// 1 the job has failed, or the scheduler cannot be reached; 2 wrong usage, or a file of --data_dir
// is damaged.
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/process/process_description.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "server/data_plane/checkpointer.h"
#include "server/data_plane/control_service.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/parameter_service.h"
#include "server/data_plane/replication_service.h"
#include "server/server_node.h"
#include "server/storage/server_log.h"
#include "server/threads/helper_threads.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(std::string, scheduler, "",
          "host:port of the scheduler, or of it and its standbys (IP addresses, separated by "
          "commas); default: the "
          "environment's PAWL_SCHEDULER");
ABSL_FLAG(std::string, listen, "",
          "host:port to listen on, which workers, other servers and the scheduler connect to; port "
          "0 takes a free one. "
          "Default: a free port of the address by which this machine reaches the scheduler");
ABSL_FLAG(std::string, advertise, "",
          "host:port at which others reach this server, if it is not the one it listens on (as "
          "with 0.0.0.0)");
ABSL_FLAG(std::string, data_dir, "",
          "folder for this server's log, for this server alone; made if missing. Needed unless the "
          "job says durability: MEMORY. "
          "Started again with it, the server is the same one and has what it had");
ABSL_FLAG(std::string, zone, "",
          "name of what fails together, such as a rack; replicas of a partition are kept in "
          "different zones");
ABSL_FLAG(bool, discard_other_job, false,
          "delete what --data_dir holds of a job that is not known to be over, if the scheduler "
          "directs another one; without "
          "it, the server does not start then");
ABSL_FLAG(uint64_t, log_bytes, uint64_t{1} << 30,
          "bytes of log after which it is replaced by snapshots: what a start has to read");
ABSL_FLAG(uint64_t, scrub_bytes_per_s, uint64_t{8} << 20,
          "how fast the log and the snapshots in --data_dir are read again in the background, to "
          "find bits that have rotted: "
          "a damaged file is written anew from memory; 0: never");
ABSL_FLAG(int, register_timeout_s, 60, "how long to try to reach the scheduler at the start");
ABSL_FLAG(int, scheduler_timeout_s, 600,
          "how long to go on without hearing of the scheduler, which may come back; parameters are "
          "served meanwhile");
ABSL_FLAG(int, drain_timeout_s, 20,
          "how long to wait, when asked to end, for others to take over the replicas");
ABSL_FLAG(uint64_t, repair_bytes_per_s, uint64_t{1} << 30,
          "the most that this server sends to new replicas. Below it the rate follows what "
          "network, processors and disks have "
          "to spare; no limit once the server is asked to end by SIGTERM");
ABSL_FLAG(int64_t, max_bytes_in_flight, int64_t{2} << 30,
          "limit for requests and answers in memory, and for pushes until the log and every backup "
          "have taken them; beyond it "
          "clients are told to wait for a moment");
ABSL_FLAG(int, step_threads, -1,
          "threads that help the one which brings the last end of a SYNC step to apply its "
          "gradients, a partition each; also "
          "for digests and for keeping the best parameters. They sleep otherwise, and do not "
          "change a bit of the results. "
          "-1: one less than there are processors; 0: each call is worked on by its own thread "
          "alone, which is right where "
          "several servers share a machine's processors");
ABSL_FLAG(int64_t, max_rows_per_partition, int64_t{1} << 26,
          "rows in one partition, all tables together");

namespace pawl {
namespace {

// How often the scheduler's name is looked up until it is known.
constexpr std::chrono::seconds kAddressInterval{1};
// How often the node looks what has happened.
constexpr std::chrono::milliseconds kTickInterval{20};
// Calls under way get this long to end when the server stops.
constexpr std::chrono::seconds kShutdownGrace{2};

// More threads than a step has partitions are of no use.
constexpr int kMaxStepThreads = 256;

size_t StepThreads() {
  const int threads = absl::GetFlag(FLAGS_step_threads);
  if (threads >= 0) return threads;
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxStepThreads) - 1;
}

double ProcessorSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Where nothing is said, on the network on which the scheduler is: others reach this machine there
// too. The scheduler's name may not be known yet, so that is tried for --register_timeout_s.
// CANCELLED if the process is asked to end meanwhile.
absl::StatusOr<std::string> ListenAddress(const std::string& scheduler, EndSignal& signal) {
  if (std::string listen = absl::GetFlag(FLAGS_listen); !listen.empty()) return listen;
  const MonotonicTime deadline =
      Clock::Real().Now() + std::chrono::seconds(absl::GetFlag(FLAGS_register_timeout_s));
  while (true) {
    absl::StatusOr<std::string> host = LocalAddressTowards(scheduler);
    if (host.ok())
      return absl::StrCat(absl::StrContains(*host, ':') ? absl::StrCat("[", *host, "]") : *host,
                          ":0");
    if (!absl::IsUnavailable(host.status()) || Clock::Real().Now() >= deadline)
      return host.status();
    if (signal.Wait(kAddressInterval)) return absl::CancelledError("asked to end");
  }
}

int Serve(const std::string& scheduler, EndSignal& signal) {
  const Clock& clock = Clock::Real();
  if (const absl::Status status = CheckSchedulerAddress(scheduler); !status.ok())
    return UsageError(status.message());
  if (absl::GetFlag(FLAGS_max_bytes_in_flight) < 1)
    return UsageError("--max_bytes_in_flight must be at least 1");
  if (absl::GetFlag(FLAGS_max_rows_per_partition) < 1)
    return UsageError("--max_rows_per_partition must be at least 1");
  if (absl::GetFlag(FLAGS_step_threads) < -1 ||
      absl::GetFlag(FLAGS_step_threads) > kMaxStepThreads) {
    return UsageError(absl::StrCat("--step_threads must be -1 to ", kMaxStepThreads));
  }
  if (absl::GetFlag(FLAGS_register_timeout_s) < 0)
    return UsageError("--register_timeout_s must be at least 0");
  if (absl::GetFlag(FLAGS_scheduler_timeout_s) < 1)
    return UsageError("--scheduler_timeout_s must be at least 1");
  if (absl::GetFlag(FLAGS_drain_timeout_s) < 0)
    return UsageError("--drain_timeout_s must be at least 0");
  if (absl::GetFlag(FLAGS_repair_bytes_per_s) < 1)
    return UsageError("--repair_bytes_per_s must be at least 1");
  if (absl::GetFlag(FLAGS_log_bytes) < 1) return UsageError("--log_bytes must be at least 1");
  const absl::StatusOr<std::string> found = ListenAddress(scheduler, signal);
  if (absl::IsCancelled(found.status())) return kExitDone;
  if (!found.ok()) {
    spdlog::error("ended: --scheduler={}: {}", scheduler, found.status().ToString());
    return kExitFailed;
  }
  const std::string& listen = *found;
  if (const absl::Status status =
          CheckAddressFlags(listen, absl::GetFlag(FLAGS_advertise), /*is_told=*/true);
      !status.ok()) {
    return UsageError(status.message());
  }
  absl::StatusOr<std::unique_ptr<ServerLog>> log = nullptr;
  if (const std::string data_dir = absl::GetFlag(FLAGS_data_dir); !data_dir.empty()) {
    ServerLogOptions log_options;
    log_options.data_folder = data_dir;
    log_options.log_bytes = absl::GetFlag(FLAGS_log_bytes);
    log_options.scrub_bytes_per_s = absl::GetFlag(FLAGS_scrub_bytes_per_s);
    log = ServerLog::Open(Env::Real(), std::move(log_options));
    if (absl::IsResourceExhausted(log.status())) {
      // There may be room when it is started again.
      spdlog::error("--data_dir={}: {}", data_dir, log.status().ToString());
      return kExitFailed;
    }
    if (!log.ok())
      return UsageError(absl::StrCat("--data_dir=", data_dir, ": ", log.status().message()));
  }

  ServerNodeOptions node_options;
  node_options.scheduler = scheduler;
  node_options.description = ProcessDescription();
  node_options.zone = absl::GetFlag(FLAGS_zone);
  node_options.discard_other_job = absl::GetFlag(FLAGS_discard_other_job);
  node_options.register_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_register_timeout_s));
  node_options.scheduler_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_scheduler_timeout_s));
  node_options.drain_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_drain_timeout_s));
  DataPlaneOptions data_plane_options;
  data_plane_options.max_bytes_in_flight = absl::GetFlag(FLAGS_max_bytes_in_flight);
  data_plane_options.max_rows_per_partition = absl::GetFlag(FLAGS_max_rows_per_partition);
  data_plane_options.cpu_seconds = ProcessorSeconds;
  HelperThreads helpers(StepThreads());
  data_plane_options.helpers = &helpers;
  data_plane_options.replication.repair_bytes_per_s = absl::GetFlag(FLAGS_repair_bytes_per_s);

  // Heartbeats have a thread of their own.
  GrpcControlChannel channel(scheduler);
  GrpcControlChannel routing_channel(scheduler);
  auto peers = std::make_unique<GrpcTransport>();
  ServerNode node(std::move(node_options), data_plane_options, *std::move(log), channel, *peers,
                  clock, &routing_channel);
  ParameterService parameter_service(node.data_plane(), clock);
  ReplicationService replication_service(node.data_plane(), clock);
  Checkpointer checkpointer(Env::Real(), node.data_plane(), clock);
  ControlService control_service(node.data_plane(), checkpointer);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&parameter_service);
  builder.RegisterService(&replication_service);
  builder.RegisterService(&control_service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return UsageError(
        absl::StrCat("--listen=", listen,
                     ": cannot listen there; is the port taken, or the host another machine's?"));
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  std::string address = absl::GetFlag(FLAGS_advertise);
  if (address.empty()) address = absl::StrCat(ParseHostPort(listen)->host, ":", port);
  spdlog::info("listening on {}, registering with the scheduler at {}", address, scheduler);

  bool asked_to_end = false;
  bool serving = false;
  std::optional<absl::Status> ended;
  if (const absl::Status status = node.Start(address); !status.ok()) ended = status;
  while (!ended.has_value() && !(ended = node.Tick()).has_value()) {
    if (signal.Wait(kTickInterval) && !std::exchange(asked_to_end, true)) node.Drain();
    if (node.serving() != serving)
      server->GetHealthCheckService()->SetServingStatus(serving = !serving);
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  checkpointer.Stop();
  node.Close();
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  helpers.Stop();
  // Waits for its calls, which end in the node: so not after it.
  peers.reset();
  channel.Shutdown();
  routing_channel.Shutdown();
  if (ended->ok() || absl::IsCancelled(*ended) || asked_to_end) {
    spdlog::info("ended{}", ended->ok() ? "" : absl::StrCat(": ", ended->message()));
    return kExitDone;
  }
  if (absl::IsInvalidArgument(*ended) || absl::IsUnimplemented(*ended))
    return UsageError(ended->message());
  if (absl::IsDataLoss(*ended)) {
    // Starting it again would not help.
    spdlog::error(
        "ended: --data_dir={}: {}; give this server another --data_dir, or restore the job from a "
        "checkpoint",
        absl::GetFlag(FLAGS_data_dir), std::string(ended->message()));
    return kExitUsage;
  }
  spdlog::error("ended: {}", ended->ToString());
  return kExitFailed;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon("pawl-server",
                    "holds a share of a job's parameters and answers pushes and pulls.\n\n"
                    "  pawl-server --scheduler=10.0.0.1:7000 --data_dir=/var/lib/pawl\n\n"
                    "It may join and leave while the job runs. SIGTERM: it hands its partitions "
                    "over first. Killed and\n"
                    "started again with the same --data_dir, it is the same server.\n\n"
                    "Exit codes: 0 the job has completed or was stopped, or this process was asked "
                    "to end; 1 the job\n"
                    "has failed or the scheduler cannot be reached; 2 wrong usage, or a file in "
                    "--data_dir is damaged.",
                    argc, argv);
  const std::string scheduler = pawl::SchedulerAddress(absl::GetFlag(FLAGS_scheduler));
  if (scheduler.empty())
    return pawl::UsageError("--scheduler=host:port is missing, and PAWL_SCHEDULER is not set");
  // Requests of megabytes come and go all the time: their memory is kept instead
  // of being given back to the kernel and zeroed again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  pawl::EndSignal signal;
  return pawl::Serve(scheduler, signal);
}
