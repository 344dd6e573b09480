#include "server/server_daemon.h"

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/host_port.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "client_lib/security/admission/guarded_port.h"
#include "client_lib/security/security.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "server/data_plane/checkpointer.h"
#include "server/data_plane/control_service.h"
#include "server/data_plane/raw_service.h"
#include "server/storage/server_log.h"
#include "server/threads/helper_threads.h"
#include "server/threads/processor_pressure.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How often to look up the scheduler's name until it resolves.
constexpr std::chrono::seconds kAddressInterval{1};
// How often the node handles events.
constexpr std::chrono::milliseconds kTickInterval{20};
// gRPC's memory for messages that arrive and answers that leave, as a multiple of what the data
// plane may have in flight: it has a message before the data plane counts it.
constexpr uint64_t kPortMemoryFactor = 2;
// The time for calls in progress to end when the server stops.
constexpr std::chrono::seconds kShutdownGrace{2};

double ProcessorSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The address to listen on. The default is on the scheduler's network, where the other processes
// reach this machine too. The scheduler's name may not resolve yet, so that is retried for
// register_timeout. CANCELLED if the process is asked to end meanwhile.
absl::StatusOr<std::string> ListenAddress(const ServerDaemonOptions& options, EndSignal& signal) {
  if (!options.listen.empty()) return options.listen;
  const MonotonicTime deadline = Clock::Real().Now() + options.node.register_timeout;
  while (true) {
    absl::StatusOr<std::string> host = LocalAddressTowards(options.node.scheduler);
    if (host.ok())
      return absl::StrCat(absl::StrContains(*host, ':') ? absl::StrCat("[", *host, "]") : *host,
                          ":0");
    if (!absl::IsUnavailable(host.status()) || Clock::Real().Now() >= deadline)
      return host.status();
    if (signal.Wait(kAddressInterval)) return absl::CancelledError("asked to end");
  }
}

// Null without a data directory.
absl::StatusOr<std::unique_ptr<ServerLog>> OpenLog(const ServerDaemonOptions& options,
                                                   EndSignal& signal) {
  if (options.data_dir.empty()) return nullptr;
  ServerLogOptions log_options;
  log_options.data_folder = options.data_dir;
  log_options.log_bytes = options.log_bytes;
  log_options.scrub_bytes_per_s = options.scrub_bytes_per_s;
  log_options.should_continue = [&signal] { return !signal.Wait(MonotonicDuration::zero()); };
  return ServerLog::Open(Env::Real(), std::move(log_options));
}

// Logs how the server ended; returns the exit code.
int ExitCode(const absl::Status& ended, bool asked_to_end, const std::string& data_dir) {
  if (ended.ok() || absl::IsCancelled(ended) || asked_to_end) {
    spdlog::info("ended{}", ended.ok() ? "" : absl::StrCat(": ", ended.message()));
    return kExitDone;
  }
  if (absl::IsInvalidArgument(ended) || absl::IsUnimplemented(ended))
    return UsageError(ended.message());
  if (absl::IsDataLoss(ended)) {
    // A restart would not help.
    spdlog::error(
        "ended: --data_dir={}: {}; give this server another --data_dir, or restore the job from a "
        "checkpoint",
        data_dir, std::string(ended.message()));
    return kExitUsage;
  }
  spdlog::error("ended: {}", ended.ToString());
  return kExitFailed;
}

}  // namespace

int RunServer(ServerDaemonOptions options, EndSignal& signal) {
  const Clock& clock = Clock::Real();
  const std::string scheduler = options.node.scheduler;
  const absl::StatusOr<std::string> listen = ListenAddress(options, signal);
  if (absl::IsCancelled(listen.status())) return kExitDone;
  if (!listen.ok()) {
    spdlog::error("ended: --scheduler={}: {}", scheduler, listen.status().ToString());
    return kExitFailed;
  }
  if (const absl::Status status =
          CheckAddressFlags(*listen, options.advertise, /*is_announced=*/true);
      !status.ok()) {
    return UsageError(status.message());
  }
  const absl::StatusOr<std::unique_ptr<Security>> security =
      Security::Open(options.security, RoleSet(PeerRole::kServer));
  if (!security.ok()) return UsageError(security.status().message());
  absl::Status is_allowed = (*security)->CheckAddresses("scheduler", scheduler);
  is_allowed.Update((*security)->CheckAddresses("listen", *listen));
  if (!is_allowed.ok()) return UsageError(is_allowed.message());
  absl::StatusOr<std::unique_ptr<ServerLog>> log = OpenLog(options, signal);
  if (absl::IsResourceExhausted(log.status()) || absl::IsUnavailable(log.status())) {
    // A later start may find room, a disk that answers, or that the previous process has ended.
    spdlog::error("--data_dir={}: {}", options.data_dir, log.status().ToString());
    return kExitFailed;
  }
  if (!log.ok())
    return UsageError(absl::StrCat("--data_dir=", options.data_dir, ": ", log.status().message()));

  options.node.security = [&security] { return (*security)->Report(); };
  HelperThreads helpers(options.step_threads);
  options.data_plane.helpers = &helpers;
  options.data_plane.cpu_seconds = ProcessorSeconds;
  ProcessorPressure pressure(Clock::Real());
  options.data_plane.replication.processor_pressure = [&pressure] { return pressure.Share(); };
  // Heartbeats have a thread of their own.
  const auto to_scheduler = (*security)->To(RoleSet(PeerRole::kScheduler));
  GrpcControlChannel channel(scheduler, to_scheduler);
  GrpcControlChannel routing_channel(scheduler, to_scheduler);
  auto peers = std::make_unique<GrpcTransport>((*security)->To(RoleSet(PeerRole::kServer)));
  ServerNode node(std::move(options.node), options.data_plane, *std::move(log), channel, *peers,
                  clock, &routing_channel);
  RawService parameter_service(node.data_plane(), clock, kParameterMethods);
  RawService replication_service(node.data_plane(), clock, kReplicationMethods);
  Checkpointer checkpointer(Env::Real(), node.data_plane(), clock,
                            AllowedFolders(options.checkpoint_roots));
  ControlService control_service(node.data_plane(), checkpointer);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder);
  // Outlives the gRPC server.
  ListenerSecurity listening = (*security)->Listening();
  listening.max_memory_bytes = kPortMemoryFactor * options.data_plane.max_bytes_in_flight;
  GuardedPort port(std::move(listening));
  if (const absl::Status status = port.Listen(builder, *listen); !status.ok())
    return UsageError(absl::StrCat("--listen=", *listen, ": ", status.message()));
  builder.RegisterService(&parameter_service);
  builder.RegisterService(&replication_service);
  builder.RegisterService(&control_service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr)
    return UsageError(absl::StrCat("--listen=", *listen, ": gRPC cannot serve there"));
  port.Start();
  server->GetHealthCheckService()->SetServingStatus(false);
  std::string address = options.advertise;
  if (address.empty()) address = absl::StrCat(ParseHostPort(*listen)->host, ":", port.port());
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
  port.Stop();
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  helpers.Stop();
  // Waits for the transport's calls, whose callbacks use the node: destroy it before the node.
  peers.reset();
  channel.Shutdown();
  routing_channel.Shutdown();
  return ExitCode(*ended, asked_to_end, options.data_dir);
}

}  // namespace pawl
