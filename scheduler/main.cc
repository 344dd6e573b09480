// pawl-scheduler: directs one job.
//
//   pawl-scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl --job=flights.pbtxt --servers=2
//   --workers=2
//
// It waits for its servers and workers, tells them who does what, notices who dies, and ends with
// the job, leaving metrics.json in --data_dir. Started again with the same command after it has
// died, it goes on with the same job: its state is in --data_dir, or where --store says. Nodes look
// for it at the address that they were given, so it must be found there again: give --listen a port
// (with port 0 it tries the one that it had). A second scheduler with the same
// --store waits until the first one is gone and takes over; nodes find it if both are behind one
// address.
//
// With --restore it begins where a checkpoint was made, as a new job with servers that have nothing
// yet.
//
// Exit codes: 0 the job has completed, also if the checkpoint of its end could not be made
// (metrics.json says it), or was stopped (SIGTERM, Ctrl-C, pawlctl); 1 the job has failed; 2 wrong
// flags, files or job; 3 the job goes on without this process, which could not save its state, has
// lost it to another scheduler, or was asked to leave
// (--stop_on_sigterm=false). Once the job is over the same command ends at once with the job's exit
// code.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/daemon/node_file.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "grpcpp/grpcpp.h"
#include "scheduler/checkpoint/checkpoint_scrubber.h"
#include "scheduler/checkpoint/checkpoint_writer.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/last_wait.h"
#include "scheduler/rpc/grpc_server_caller.h"
#include "scheduler/rpc/listener.h"
#include "scheduler/rpc/service.h"
#include "scheduler/startup/rebuild.h"
#include "scheduler/startup/rebuild_listener.h"
#include "scheduler/startup/startup.h"
#include "scheduler/status/metrics.h"
#include "scheduler/status/metrics_endpoint.h"
#include "scheduler/status/metrics_file.h"
#include "scheduler/store/leadership.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/state_saver.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

ABSL_FLAG(bool, rebuild, false,
          "the state in --data_dir or --store is lost and the servers still run: make it again "
          "from what they hold");
ABSL_FLAG(uint32_t, rebuild_timeout_s, 30, "how long --rebuild waits for servers");
ABSL_FLAG(std::vector<std::string>, rebuild_without, {},
          "servers for which --rebuild does not wait, separated by commas: they are dead for good");
ABSL_FLAG(std::string, listen, "127.0.0.1:7000",
          "host:port to listen on; port 0 takes a free one. Servers, workers and clients must be "
          "able to reach it.");
ABSL_FLAG(std::string, advertise, "",
          "host:port to write to --address_file, where it is not the one it listens on (as with "
          "0.0.0.0)");
ABSL_FLAG(std::string, data_dir, "",
          "folder for metrics.json and, without --store, the state; made if missing");
ABSL_FLAG(std::string, store, "",
          "where the state is kept, from which a scheduler that is started again, or one that "
          "stands by, goes on: a "
          "folder, or etcd://host:port[,host:port...]/prefix for schedulers on several machines; "
          "default: "
          "DATA_DIR/state");
ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(uint32_t, servers, 1, "servers with which the job begins");
ABSL_FLAG(int32_t, workers, -1,
          "workers with which the job begins; later any number may join and leave. Default: 1, and "
          "0 for a job that only "
          "serves tables");
ABSL_FLAG(uint32_t, replicas, 0,
          "replicas of each partition, each on another server: an acknowledged push survives the "
          "loss of all of them "
          "but one; 0: what the job says, or 1");
ABSL_FLAG(uint32_t, heartbeat_interval_ms, 200, "how often each node sends a heartbeat");
ABSL_FLAG(uint32_t, lease_ms, 1000,
          "a node without a heartbeat for so long is declared dead; give more (3000) in containers "
          "and on busy machines");
ABSL_FLAG(double, worker_return_timeout_s, 60,
          "the job fails if the ranks of a worker that died or left have no host for so long; also "
          "if five hosts of a rank have "
          "died in a row without ending a step, the first one so long ago");
ABSL_FLAG(double, worker_takeover_grace_s, 1,
          "how long the ranks of a worker that died are kept for it, so that whoever starts it "
          "again comes first; then "
          "the workers that live take them over");
ABSL_FLAG(double, recovery_timeout_s, 60,
          "how long to wait for a server that died with the last replica of a partition, before "
          "the job fails. With "
          "durability: MEMORY such a server can only come back if it was unreachable");
ABSL_FLAG(std::string, restore, "",
          "begin from a checkpoint: its folder, or a folder of checkpoints, of which this job's "
          "newest is taken. The number "
          "of servers and workers may be another one");
ABSL_FLAG(bool, begin_anew, false,
          "train the job again from its beginning although --data_dir or --store say that it is "
          "over; without it, the "
          "scheduler of a job that is over ends at once with the job's exit code");
ABSL_FLAG(
    bool, stop_on_sigterm, true,
    "SIGTERM and Ctrl-C stop the job, as pawlctl stop does. With --stop_on_sigterm=false this "
    "process alone ends, with "
    "exit code 3, and the job goes on when a scheduler is started again or a standby takes over");
ABSL_FLAG(std::string, address_file, "",
          "file that gets host:port as soon as the scheduler listens");
ABSL_FLAG(std::string, metrics_listen, "",
          "host:port at which Prometheus finds /metrics over HTTP; port 0 takes a free one, which "
          "the log says. Whoever reaches "
          "it can read it. Default: none");
ABSL_FLAG(uint64_t, scrub_bytes_per_s, uint64_t{8} << 20,
          "how fast the checkpoints in the job's checkpoint.dir are read again in the background, "
          "to find bits that have rotted: "
          "a damaged checkpoint is replaced by a new one; 0: never");
ABSL_FLAG(uint32_t, start_timeout_ms, 300000,
          "the job fails unless all servers and workers have joined by then");
ABSL_FLAG(uint32_t, linger_ms, 5000,
          "how long to wait, at the job's end, for the nodes to notice it and leave");

namespace pawl {
namespace {

// The shortest heartbeat that is no burden, and the longest lease with which a death is still
// noticed.
constexpr uint32_t kMinHeartbeatIntervalMs = 10;
constexpr uint32_t kMaxLeaseMs = 600000;
// Calls under way get this long to end when the scheduler stops.
constexpr std::chrono::milliseconds kShutdownGrace{500};
// How long a checkpoint that the job does not wait for any more may take to be written before the
// process ends without.
constexpr std::chrono::seconds kLastCheckpointTimeout{10};
constexpr double kMaxTimeoutS = 1e6;
// How often the log says how far the verification of a checkpoint is.
constexpr std::chrono::seconds kVerifyLogInterval{5};

uint64_t RandomJobId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

absl::StatusOr<std::chrono::milliseconds> Timeout(absl::string_view flag, double seconds) {
  if (!(seconds >= 0 && seconds <= kMaxTimeoutS)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", seconds, " must be 0 to ", kMaxTimeoutS));
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

// `below` says what a value below `least` would mean.
absl::StatusOr<std::chrono::milliseconds> Milliseconds(absl::string_view flag, uint32_t value,
                                                       uint32_t least, absl::string_view below) {
  if (value >= least && value <= kMaxTimeoutS * 1000) return std::chrono::milliseconds(value);
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, " must be ", least, " to ",
                                                 static_cast<uint64_t>(kMaxTimeoutS * 1000),
                                                 value < least ? absl::StrCat(": ", below) : ""));
}

// The job as it will be run, and all that the flags say about it.
absl::StatusOr<Coordinator::Options> ReadOptions() {
  Coordinator::Options options;
  if (absl::GetFlag(FLAGS_job).empty()) return absl::InvalidArgumentError("--job=FILE is missing");
  PAWL_ASSIGN_OR_RETURN(options.job, ReadJobFile(absl::GetFlag(FLAGS_job)));
  const int32_t workers = absl::GetFlag(FLAGS_workers);
  if (workers < -1 || workers > static_cast<int32_t>(kMaxWorkers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", workers, " must be 0 to ", kMaxWorkers));
  }
  options.workers = workers >= 0               ? static_cast<uint32_t>(workers)
                    : IsServeOnly(options.job) ? 0
                                               : 1;
  if (options.workers == 0 && !IsServeOnly(options.job)) {
    return absl::InvalidArgumentError("--workers=0: a job that trains needs at least one worker");
  }
  options.servers = absl::GetFlag(FLAGS_servers);
  if (options.servers < 1 || options.servers > kMaxServers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--servers=", options.servers, " must be 1 to ", kMaxServers));
  }
  const uint32_t heartbeat_interval_ms = absl::GetFlag(FLAGS_heartbeat_interval_ms);
  const uint32_t lease_ms = absl::GetFlag(FLAGS_lease_ms);
  if (heartbeat_interval_ms < kMinHeartbeatIntervalMs ||
      lease_ms < uint64_t{2} * heartbeat_interval_ms || lease_ms > kMaxLeaseMs) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heartbeat_interval_ms=", heartbeat_interval_ms, " --lease_ms=", lease_ms,
                     ": the interval must be at least ", kMinHeartbeatIntervalMs,
                     ", and the lease at least twice the interval and at most ", kMaxLeaseMs));
  }
  options.heartbeat_interval = std::chrono::milliseconds(heartbeat_interval_ms);
  options.lease = std::chrono::milliseconds(lease_ms);
  PAWL_ASSIGN_OR_RETURN(
      options.start_timeout,
      Milliseconds("start_timeout_ms", absl::GetFlag(FLAGS_start_timeout_ms), 1,
                   "the job would fail before its servers and workers can have joined"));
  PAWL_RETURN_IF_ERROR(Milliseconds("linger_ms", absl::GetFlag(FLAGS_linger_ms), 0, "").status());
  PAWL_ASSIGN_OR_RETURN(
      options.worker_takeover_grace,
      Timeout("worker_takeover_grace_s", absl::GetFlag(FLAGS_worker_takeover_grace_s)));
  PAWL_ASSIGN_OR_RETURN(
      options.worker_return_timeout,
      Timeout("worker_return_timeout_s", absl::GetFlag(FLAGS_worker_return_timeout_s)));
  PAWL_ASSIGN_OR_RETURN(options.recovery_timeout,
                        Timeout("recovery_timeout_s", absl::GetFlag(FLAGS_recovery_timeout_s)));
  if (absl::GetFlag(FLAGS_replicas) != 0) options.job.set_replicas(absl::GetFlag(FLAGS_replicas));
  if (options.job.replicas() > options.servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replicas is ", options.job.replicas(), ", but --servers=", options.servers,
        ": each replica of a partition needs a server of its own; start more servers or lower it"));
  }
  FillDefaults(options.job, options.workers);
  JobValidationOptions validation;
  validation.workers = options.workers;
  PAWL_RETURN_IF_ERROR(Annotate(ValidateJob(options.job, validation), absl::GetFlag(FLAGS_job)));
  options.unix_ms = [] {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  };
  return options;
}

// Waits for nothing.
[[noreturn]] void Exit(int code) {
  spdlog::default_logger()->flush();
  std::_Exit(code);
}

// Another scheduler directs the job now, or is to: not one word more, as if this one had been
// killed.
[[noreturn]] void EndAtOnce(absl::string_view why) {
  spdlog::error("ended: {}", std::string(why));
  Exit(kExitAgain);
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> ListenForMetrics(const std::string& address,
                                                                  Coordinator& coordinator) {
  PAWL_RETURN_IF_ERROR(ParseHostPort(address).status());
  return MetricsEndpoint::Listen(address, [&coordinator] {
    const absl::StatusOr<GetStatusResponse> status = coordinator.GetStatus(GetStatusRequest());
    if (!status.ok()) return std::vector<prometheus::MetricFamily>();
    return Metrics(*status, coordinator.EventCounts(), coordinator.CheckpointFiles());
  });
}

// Null if the job has no folder of checkpoints, or they are not to be read again. All outlive what
// it returns.
std::unique_ptr<CheckpointScrubber> MakeScrubber(const Job& job, const StateStore& store,
                                                 CheckpointWriter& writer,
                                                 Coordinator& coordinator) {
  CheckpointScrubberOptions options;
  options.dir = job.checkpoint().dir();
  options.job_name = job.name();
  options.bytes_per_s = absl::GetFlag(FLAGS_scrub_bytes_per_s);
  if (options.dir.empty() || options.bytes_per_s == 0) return nullptr;
  CheckpointScrubber::Events events;
  events.may_read = [&store, &writer, &coordinator] {
    return store.IsLeader() && coordinator.state() == RUNNING &&
           writer.WaitUntilIdle(Clock::Real().Now());
  };
  events.damaged = [&coordinator](const CheckpointId& checkpoint, const absl::Status& damage) {
    coordinator.OnCheckpointDamaged(checkpoint.step, checkpoint.of_end, damage);
  };
  return std::make_unique<CheckpointScrubber>(Env::Real(), std::move(options), std::move(events));
}

// Stores the state that the servers' words make. FAILED_PRECONDITION, CANCELLED, or the store's
// error.
absl::Status RebuildAndStore(const CoordinatorOptions& options, const HostPort& listen_at,
                             StateStore& store, EndSignal& signal) {
  if (listen_at.port == 0) {
    return absl::FailedPreconditionError(
        "--listen must have the port at which the servers look for their scheduler");
  }
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<RebuildListener> listener,
                        RebuildListener::Listen(listen_at));
  const auto timeout = std::chrono::seconds(absl::GetFlag(FLAGS_rebuild_timeout_s));
  spdlog::info("rebuilding the state: waiting for servers, {} s at most", timeout.count());
  const std::vector<std::string> dead = absl::GetFlag(FLAGS_rebuild_without);
  Rebuild rebuild({.job = options.job,
                   .servers = options.servers,
                   .workers = options.workers,
                   .without = {dead.begin(), dead.end()},
                   .unix_ms = options.unix_ms()},
                  timeout, Clock::Real().Now());
  std::vector<RegisterRequest> heard = listener->Heard();
  std::optional<absl::StatusOr<SchedulerState>> rebuilt = rebuild.Poll(heard, Clock::Real().Now());
  while (!rebuilt.has_value()) {
    if (signal.Wait(kTickInterval)) return absl::CancelledError("asked to end");
    heard = listener->Heard();
    rebuilt = rebuild.Poll(heard, Clock::Real().Now());
  }
  PAWL_ASSIGN_OR_RETURN(const SchedulerState state, *std::move(rebuilt));
  spdlog::warn(
      "state rebuilt from {} servers: {} partitions, {} tables, routing epoch {}; evaluations and "
      "events are lost",
      heard.size(), state.placement().partitions_size(), state.tables().tables_size(),
      state.placement().epoch());
  return store.Save(1, state.SerializeAsString());
}

// What there is to say before there is a coordinator.
GetStatusResponse StatusWhileVerifying(const Job& job, uint64_t job_id, const std::string& restore,
                                       const VerifyProgress& verified) {
  GetStatusResponse status;
  *status.mutable_job() = job;
  status.set_job_id(job_id);
  status.set_state(STARTING);
  CheckpointStatus& checkpoint = *status.mutable_checkpoint();
  checkpoint.set_verifying(restore);
  checkpoint.set_parts(verified.parts);
  checkpoint.set_parts_verified(verified.parts_done);
  checkpoint.set_bytes(verified.bytes);
  checkpoint.set_bytes_verified(verified.bytes_done);
  return status;
}

// PrepareCheckpoints, with lines in the log while it takes long. CANCELLED if the process is asked
// to end meanwhile: then it is still under way.
absl::Status AwaitCheckpoints(const Startup& startup, Coordinator::Options& options,
                              VerifyProgress& verified, EndSignal& signal) {
  absl::Status status;
  std::atomic<bool> done = false;
  std::thread thread([&] {
    PAWL_FAILPOINT("restore.verifying");
    status = PrepareCheckpoints(Env::Real(), startup, options, &verified);
    done = true;
  });
  MonotonicTime next_line = Clock::Real().Now() + kVerifyLogInterval;
  while (!done) {
    if (signal.Wait(kTickInterval)) {
      thread.detach();
      return absl::CancelledError("asked to end while the checkpoint was being verified");
    }
    if (Clock::Real().Now() < next_line) continue;
    spdlog::info("verifying {}: {} of {} parts, {} of {} bytes", startup.restore,
                 verified.parts_done.load(), verified.parts.load(), verified.bytes_done.load(),
                 verified.bytes.load());
    next_line += kVerifyLogInterval;
  }
  thread.join();
  return status;
}

int Direct(EndSignal& signal) {
  absl::StatusOr<Coordinator::Options> options = ReadOptions();
  if (!options.ok()) return UsageError(options.status().message());
  const std::string data_dir = absl::GetFlag(FLAGS_data_dir);
  if (data_dir.empty()) return UsageError("--data_dir=FOLDER is missing");
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error)
    return UsageError(absl::StrCat("--data_dir=", data_dir, " cannot be made: ", error.message()));
  if (const absl::Status status = CheckIsNotNodeFolder(Env::Real(), data_dir); !status.ok()) {
    return UsageError(absl::StrCat("--data_dir: ", status.message()));
  }
  const std::string metrics_path = (std::filesystem::path(data_dir) / "metrics.json").string();
  const std::string address_path = (std::filesystem::path(data_dir) / "address").string();
  std::atomic<bool> writes_report = false;
  options->write_report = [metrics_path, &writes_report](const JobReport& report) {
    // A job that has failed or was stopped is saved as that already.
    writes_report = report.status.state() == COMPLETED;
    PAWL_FAILPOINT("report.writing");
    absl::Status status = WriteFileDurably(Env::Real(), metrics_path, MetricsJson(report));
    writes_report = false;
    return status;
  };
  const std::string listen = absl::GetFlag(FLAGS_listen);
  const bool tells_address = !absl::GetFlag(FLAGS_address_file).empty();
  if (const absl::Status status =
          CheckAddressFlags(listen, absl::GetFlag(FLAGS_advertise), tells_address);
      !status.ok()) {
    return UsageError(status.message());
  }
  const HostPort listen_at = *ParseHostPort(listen);

  const std::string place = absl::GetFlag(FLAGS_store).empty()
                                ? (std::filesystem::path(data_dir) / "state").string()
                                : absl::GetFlag(FLAGS_store);
  const absl::StatusOr<std::unique_ptr<StateStore>> store = OpenStore(place);
  if (!store.ok()) return UsageError(absl::StrCat("--store: ", store.status().message()));
  (*store)->WhenLeadershipLost([](const absl::Status& why) { EndAtOnce(why.message()); });
  const Startup startup = {.job = absl::GetFlag(FLAGS_job),
                           .place = (*store)->Describe(),
                           .restore = absl::GetFlag(FLAGS_restore),
                           .begin_anew = absl::GetFlag(FLAGS_begin_anew)};
  const absl::StatusOr<Leadership> leadership = BecomeLeader(
      **store, [&signal](MonotonicDuration pause) { return signal.Wait(pause); },
      [&](const std::optional<StoredState>& stored) -> absl::StatusOr<bool> {
        PAWL_ASSIGN_OR_RETURN(const std::optional<SchedulerState> state,
                              StateToResume(stored, *options, startup));
        return state.has_value();
      });
  if (!leadership.ok()) return UsageError(leadership.status().message());
  if (*leadership == Leadership::kNever) return kExitDone;
  // Once more now that a server would see the state's folder.
  if (!std::filesystem::equivalent(place, data_dir, error)) {
    if (const absl::Status status = CheckIsNotNodeFolder(Env::Real(), data_dir); !status.ok()) {
      return UsageError(absl::StrCat("--data_dir: ", status.message()));
    }
  }
  absl::StatusOr<std::optional<StoredState>> stored = (*store)->Load();
  if (!stored.ok()) return UsageError(stored.status().message());
  if (absl::GetFlag(FLAGS_rebuild)) {
    if (stored->has_value()) {
      return UsageError(absl::StrCat("--rebuild: ", (*store)->Describe(),
                                     " holds a state; leave --rebuild out to go on from it"));
    }
    if (const absl::Status status = RebuildAndStore(*options, listen_at, **store, signal);
        !status.ok()) {
      return UsageError(absl::StrCat("--rebuild: ", status.message()));
    }
    stored = (*store)->Load();
    if (!stored.ok()) return UsageError(stored.status().message());
  }
  const absl::StatusOr<std::optional<SchedulerState>> found =
      StateToResume(*stored, *options, startup);
  if (!found.ok()) return UsageError(found.status().message());
  if (*leadership == Leadership::kAfterAnother && stored->has_value() &&
      (!found->has_value() || (*found)->closed())) {
    // It stood by for this job, not for another one with the same name.
    spdlog::info("ended: the job is over, directed by another scheduler");
    return kExitDone;
  }
  if (found->has_value() && (*found)->closed()) {
    // Whoever starts what has ended again, as service managers do, must not have the job trained
    // again.
    spdlog::info(
        "ended: job '{}' is over already: {}. --begin_anew has it trained again, from its "
        "beginning",
        options->job.name(), JobState_Name((*found)->state()));
    return (*found)->state() == FAILED ? kExitFailed : kExitDone;
  }
  const SchedulerState* const restored = found->has_value() ? &**found : nullptr;
  options->job_id = restored == nullptr ? RandomJobId() : restored->job_id();
  const Job job = options->job;
  const uint64_t job_id = options->job_id;
  // No node looks for the scheduler of an earlier job.
  VerifyProgress verified;
  SchedulerService service([&job, job_id, &startup, &verified] {
    return StatusWhileVerifying(job, job_id, startup.restore, verified);
  });
  const absl::StatusOr<Listener> listener =
      Listen(listen_at, restored == nullptr ? "" : address_path, service);
  if (!listener.ok())
    return UsageError(absl::StrCat("--listen=", listen, ": ", listener.status().message()));
  grpc::Server* const server = listener->server.get();
  // It answers, and serves nothing yet.
  server->GetHealthCheckService()->SetServingStatus(false);
  // From here on the way out is Exit, until all is shut down: calls may be under way.
  std::string address = absl::GetFlag(FLAGS_advertise);
  if (address.empty()) address = absl::StrCat(listen_at.host, ":", listener->port);
  spdlog::info("job '{}': listening on {}", job.name(), address);
  if (const absl::Status status = WriteFileDurably(
          Env::Real(), address_path, absl::StrCat(listen_at.host, ":", listener->port, "\n"));
      !status.ok()) {
    Exit(UsageError(absl::StrCat("--data_dir: ", status.message())));
  }
  if (const std::string file = absl::GetFlag(FLAGS_address_file); !file.empty()) {
    if (const absl::Status status = WriteFileDurably(Env::Real(), file, address + "\n");
        !status.ok()) {
      Exit(UsageError(absl::StrCat("--address_file: ", status.message())));
    }
  }
  if (restored == nullptr) {
    if (const absl::Status status = AwaitCheckpoints(startup, *options, verified, signal);
        !status.ok()) {
      if (!absl::IsCancelled(status)) Exit(UsageError(status.message()));
      spdlog::info("ended: {}; the job has not begun", std::string(status.message()));
      Exit(kExitDone);
    }
    // A result that is older than this job is none.
    std::filesystem::remove(metrics_path, error);
  }
  // A scheduler that was interrupted may not have come to it; once a checkpoint is complete it has.
  std::optional<StoredRestore> begins_with = options->restore;
  if (restored != nullptr && restored->has_restore() && restored->checkpoint().completed() == 0) {
    begins_with = restored->restore();
  }
  std::atomic<StateSaver*> notified = nullptr;
  options->leads = [&store] { return (*store)->IsLeader(); };
  options->state_changed = [&notified] {
    if (StateSaver* const saver = notified.load(); saver != nullptr) saver->Notify();
  };
  // Ends before the coordinator, which it calls.
  auto checkpoint_writer = std::make_unique<CheckpointWriter>(Env::Real());
  options->write_checkpoint = [&checkpoint_writer](const std::string& dir,
                                                   CheckpointManifest manifest, uint32_t keep,
                                                   CheckpointWriter::Done done) {
    checkpoint_writer->Write(dir, std::move(manifest), keep, std::move(done));
  };
  GrpcServerCaller servers;
  Coordinator coordinator(*std::move(options), Clock::Real(), servers, restored);
  StateSaver::Callbacks callbacks;
  callbacks.take = [&coordinator] { return coordinator.TakeUnsaved(); };
  callbacks.saved = [&coordinator](uint64_t change) { coordinator.StateIsSaved(change); };
  callbacks.lost = [](const absl::Status& why) { EndAtOnce(why.message()); };
  StateSaver saver(**store, stored->has_value() ? (*stored)->revision : 0, std::move(callbacks));
  notified = &saver;
  service.Begin(coordinator);
  server->GetHealthCheckService()->SetServingStatus(true);

  std::unique_ptr<MetricsEndpoint> metrics;
  if (const std::string at = absl::GetFlag(FLAGS_metrics_listen); !at.empty()) {
    absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint = ListenForMetrics(at, coordinator);
    if (endpoint.ok()) {
      metrics = *std::move(endpoint);
      spdlog::info("metrics at http://{}:{}/metrics", ParseHostPort(at)->host, metrics->port());
    } else if (restored == nullptr) {
      Exit(UsageError(absl::StrCat("--metrics_listen=", at, ": ", endpoint.status().message())));
    } else {
      // The job that goes on is worth more than being watched.
      spdlog::error("--metrics_listen={}: {}; there are no metrics", at,
                    endpoint.status().ToString());
    }
  }

  if (begins_with.has_value()) {
    if (const absl::Status status =
            SetLaterCheckpointsAside(Env::Real(), job, job_id, *begins_with);
        !status.ok()) {
      const std::string text =
          absl::StrCat("checkpoint.dir is ", job.checkpoint().dir(),
                       ": later checkpoints there cannot be set aside: ", status.message());
      if (restored == nullptr) Exit(UsageError(text));
      spdlog::error("{}", text);
    }
  }

  // After that: what is set aside is not read.
  std::unique_ptr<CheckpointScrubber> scrubber =
      MakeScrubber(job, **store, *checkpoint_writer, coordinator);

  // The job is over, and everybody has heard of it or has had the time to.
  const Clock& clock = Clock::Real();
  std::optional<LastWait> last_wait;
  while (!coordinator.over()) {
    if (signal.Wait(kTickInterval) && !last_wait.has_value()) {
      if (!absl::GetFlag(FLAGS_stop_on_sigterm)) {
        saver.WaitUntilSaved(clock.Now() + kLastSaveTimeout);
        EndAtOnce(
            "this scheduler was asked to leave; the job goes on when one is started again or a "
            "standby takes over");
      }
      coordinator.Stop("the scheduler was asked to end");
      last_wait.emplace(clock.Now());
    }
    coordinator.Tick();
    if (last_wait.has_value() && !coordinator.over() &&
        last_wait->IsOver(clock.Now(), writes_report)) {
      EndAtOnce("the state cannot be saved, or metrics.json not be written");
    }
  }
  server->GetHealthCheckService()->SetServingStatus(false);
  const MonotonicTime end = clock.Now() + std::chrono::milliseconds(absl::GetFlag(FLAGS_linger_ms));
  while (!coordinator.AllNodesGone() && clock.Now() < end) {
    signal.Wait(kTickInterval);
    coordinator.Tick();
  }
  coordinator.Close();
  if (!saver.WaitUntilSaved(clock.Now() + kLastSaveTimeout)) EndAtOnce("the state cannot be saved");
  // Shutdown waits for every answer, and a late good-bye's would wait for a store that fails just
  // now.
  coordinator.HoldNothingBack();
  metrics = nullptr;
  server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  servers.Shutdown();
  const MonotonicTime files_until = clock.Now() + kLastCheckpointTimeout;
  const bool reading_hangs = scrubber != nullptr && !scrubber->Stop(files_until);
  const bool writing_hangs = !checkpoint_writer->WaitUntilIdle(files_until);
  saver.WaitUntilSaved(clock.Now() + kLastSaveTimeout);
  const JobState state = coordinator.state();
  spdlog::info("ended: {}", JobState_Name(state));
  const int code = state == FAILED ? kExitFailed : kExitDone;
  if (reading_hangs || writing_hangs) {
    spdlog::warn("a checkpoint is still being {}; its folder seems to hang",
                 writing_hangs ? "written" : "read");
    Exit(code);
  }
  scrubber = nullptr;
  checkpoint_writer = nullptr;
  return code;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon(
      "pawl-scheduler",
      "directs one job.\n\n"
      "  pawl-scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl --job=flights.pbtxt "
      "--servers=2 "
      "--workers=2\n\n"
      "After a crash, start it again with the same command: it goes on with the job, and training "
      "does\n"
      "not stop meanwhile. Give --listen a fixed port, so that it is found again. A second one "
      "with the\n"
      "same --store stands by until the first is gone. SIGTERM and Ctrl-C stop the job\n"
      "(--stop_on_sigterm=false: only this process). Once the job is over the same command ends at "
      "once.\n\n"
      "Exit codes: 0 the job has completed or was stopped; 1 it has failed; 2 wrong flags, files "
      "or job;\n"
      "3 the job goes on without this process: start it again, unless another scheduler has taken "
      "over.\n"
      "A job completes also if the checkpoint of its end could not be made: then metrics.json has "
      "an\n"
      "end_checkpoint_failure.",
      argc, argv);
  pawl::EndSignal signal;
  return pawl::Direct(signal);
}
