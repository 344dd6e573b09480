#include "scheduler/process/scheduler_process.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/random.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/node_file.h"
#include "client_lib/job/job_validation.h"
#include "grpcpp/grpcpp.h"
#include "scheduler/curve/curve_file.h"
#include "scheduler/curve/event_file.h"
#include "scheduler/process/end_deadline.h"
#include "scheduler/startup/rebuild.h"
#include "scheduler/startup/rebuild_listener.h"
#include "scheduler/status/metrics.h"
#include "scheduler/status/metrics_file.h"
#include "scheduler/store/open_store.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Time for rpcs in progress to end when the scheduler stops.
constexpr std::chrono::milliseconds kShutdownGrace{500};
// In --data_dir.
constexpr char kAuditFile[] = "audit.jsonl";
constexpr char kRefusedFile[] = "refused.jsonl";
// Time for a checkpoint that the job no longer waits for to be written.
constexpr std::chrono::seconds kLastCheckpointTimeout{10};
// Time for the files of the learning curve and the folder of checkpoints to be opened.
constexpr std::chrono::seconds kOpenTimeout{10};
// How often the log reports the progress of a verification.
constexpr std::chrono::seconds kVerifyLogInterval{5};

// Exits without waiting for anything.
[[noreturn]] void Exit(int code) {
  spdlog::default_logger()->flush();
  std::_Exit(code);
}

// Another scheduler directs the job now, or will: this process sends nothing more, as if killed.
[[noreturn]] void EndAtOnce(absl::string_view why) {
  spdlog::error("ended: {}", std::string(why));
  Exit(kExitRestart);
}

}  // namespace

SchedulerProcess::SchedulerProcess(SchedulerOptions options, EndSignal& signal)
    : options_(std::move(options)), signal_(signal) {}

int SchedulerProcess::Run() {
  if (const absl::Status status = CheckOptions(); !status.ok()) return UsageError(status.message());
  const absl::StatusOr<ExitCode> code = BecomeLeaderAndLoad();
  if (!code.ok()) return UsageError(code.status().message());
  if (code->has_value()) return **code;
  if (const absl::Status status = StartListening(); !status.ok())
    return UsageError(status.message());
  // Rpcs may be in progress from here on, so every early way out is Exit.
  if (const absl::Status status = StartCoordinator(); !status.ok())
    Exit(UsageError(status.message()));
  DirectUntilEnd();
  return ShutDown();
}

// Startup -----------------------------------------------------------------------

absl::Status SchedulerProcess::CheckOptions() {
  PAWL_ASSIGN_OR_RETURN(coordinator_options_, MakeCoordinatorOptions(options_));
  if (options_.data_dir.empty()) return absl::InvalidArgumentError("--data_dir=FOLDER is missing");
  const std::filesystem::path data_dir = options_.data_dir;
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data_dir=", options_.data_dir, " cannot be created: ", error.message()));
  }
  store_path_ = options_.store.empty() ? (data_dir / "state").string()
                                       : std::string(absl::StripPrefix(options_.store, "file:"));
  PAWL_RETURN_IF_ERROR(CheckDataDir());
  PAWL_RETURN_IF_ERROR(CheckAddressFlags(options_.listen, options_.advertise,
                                         /*is_announced=*/!options_.address_file.empty()));
  listen_at_ = *ParseHostPort(options_.listen);
  PAWL_ASSIGN_OR_RETURN(audit_, AuditLog::Open((data_dir / kAuditFile).string()));
  PAWL_ASSIGN_OR_RETURN(refused_, AuditLog::Open((data_dir / kRefusedFile).string()));
  PAWL_ASSIGN_OR_RETURN(
      security_, Security::Open(options_.security, RoleSet(PeerRole::kScheduler), refused_.get()));
  PAWL_RETURN_IF_ERROR(security_->CheckAddresses("listen", options_.listen));
  WarnOfOtherJob();
  metrics_path_ = (data_dir / "metrics.json").string();
  address_path_ = (data_dir / "address").string();
  coordinator_options_.write_report = [this](const JobReport& report) {
    writing_report_ = report.status.state() == COMPLETED;
    PAWL_FAILPOINT("report.writing");
    absl::Status status = WriteFileDurably(Env::Real(), metrics_path_, MetricsJson(report));
    writing_report_ = false;
    return status;
  };
  return absl::OkStatus();
}

absl::Status SchedulerProcess::CheckDataDir() const {
  std::error_code error;
  const bool holds_store = std::filesystem::equivalent(store_path_, options_.data_dir, error);
  return Annotate(CheckIsNotNodeFolder(Env::Real(), options_.data_dir, holds_store), "--data_dir");
}

void SchedulerProcess::WarnOfOtherJob() const {
  // Not refused: a job is often renamed, and its certificates stay.
  const std::optional<Identity> own = security_->identity();
  const std::string& name = coordinator_options_.job.name();
  if (!own.has_value() || own->job == name) return;
  spdlog::warn(
      "the certificate in --tls_dir is for job '{}', and the job file's name is '{}'. The "
      "processes of all jobs with certificates for '{}' can join this one",
      own->job, name, own->job);
}

absl::StatusOr<SchedulerProcess::ExitCode> SchedulerProcess::BecomeLeaderAndLoad() {
  absl::StatusOr<std::unique_ptr<StateStore>> store = OpenStore(
      store_path_, {.etcd_tls_dir = options_.etcd_tls_dir, .insecure = options_.security.insecure});
  PAWL_RETURN_IF_ERROR(Annotate(store.status(), "--store"));
  store_ = *std::move(store);
  store_->SetLeadershipLostCallback([](const absl::Status& why) { EndAtOnce(why.message()); });
  startup_ = {.job = options_.job,
              .place = store_->Describe(),
              .restore = options_.restore,
              .restart_ended_job = options_.restart_ended_job};
  const auto must_end = [this](MonotonicDuration pause) { return signal_.Wait(pause); };
  bool stood_by = false;
  PAWL_ASSIGN_OR_RETURN(
      const Leadership leadership,
      BecomeLeader(
          *store_, must_end, [&](const std::optional<StoredState>& stored) -> absl::StatusOr<bool> {
            PAWL_ASSIGN_OR_RETURN(stood_by, StandsByFor(stored, coordinator_options_, startup_));
            return stood_by;
          }));
  if (leadership == Leadership::kStopped) return CodeOfSignal();
  // Checked again now that a server would notice the state's folder.
  PAWL_RETURN_IF_ERROR(CheckDataDir());
  absl::StatusOr<std::optional<StoredState>> loaded = LoadState(*store_, must_end);
  if (absl::IsCancelled(loaded.status())) return CodeOfSignal();
  PAWL_ASSIGN_OR_RETURN(stored_, std::move(loaded));
  if (options_.rebuild) {
    if (stored_.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--rebuild: ", store_->Describe(), " holds a state; omit --rebuild to continue from it"));
    }
    const absl::Status rebuilt = RebuildAndStore();
    if (absl::IsCancelled(rebuilt)) return CodeOfSignal();
    PAWL_RETURN_IF_ERROR(Annotate(rebuilt, "--rebuild"));
    loaded = LoadState(*store_, must_end);
    if (absl::IsCancelled(loaded.status())) return CodeOfSignal();
    PAWL_ASSIGN_OR_RETURN(stored_, std::move(loaded));
  }
  PAWL_ASSIGN_OR_RETURN(restored_, StateToResume(stored_, coordinator_options_, startup_));
  const bool has_ended = restored_.has_value() && restored_->closed();
  if (stood_by && stored_.has_value() && (!restored_.has_value() || has_ended)) {
    // This standby waited for the job that has ended, not for another one with the same name.
    spdlog::info("ended: the job has ended, directed by another scheduler");
    return has_ended && restored_->state() == FAILED ? kExitFailed : kExitDone;
  }
  if (has_ended) {
    // Service managers restart a scheduler that has ended; that must not train the job again.
    const std::string from = options_.restore.empty() ? "its start" : options_.restore;
    spdlog::info(
        "ended: job '{}' has already ended: {}. To train it again from {}, name another place for "
        "the state, or use --restart_ended_job once",
        coordinator_options_.job.name(), JobState_Name(restored_->state()), from);
    return restored_->state() == FAILED ? kExitFailed : kExitDone;
  }
  if (!restored_.has_value()) {
    // Only for a new job: the data of one that runs may be away by now.
    const JobValidationOptions with_files = {.check_files = true,
                                             .workers = coordinator_options_.workers};
    PAWL_RETURN_IF_ERROR(Annotate(ValidateJob(coordinator_options_.job, with_files), options_.job));
  }
  if (restored_.has_value()) {
    if (const std::string warning = ResumeWarning(*restored_, startup_); !warning.empty())
      spdlog::warn("{}", warning);
  }
  job_id_ = restored_.has_value() ? restored_->job_id() : std::max<uint64_t>(RandomNumber(), 1);
  coordinator_options_.job_id = job_id_;
  job_ = coordinator_options_.job;
  return std::nullopt;
}

int SchedulerProcess::CodeOfSignal() const {
  return options_.stop_on_sigterm ? kExitDone : kExitRestart;
}

absl::Status SchedulerProcess::RebuildAndStore() {
  if (listen_at_.port == 0) {
    return absl::FailedPreconditionError(
        "--listen must have the port at which the servers look for their scheduler");
  }
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<RebuildListener> listener,
                        RebuildListener::Listen(listen_at_, security_->Listening(), audit_.get()));
  const auto timeout = std::chrono::seconds(options_.rebuild_timeout_s);
  spdlog::info("rebuilding the state: waiting at most {} s for servers", timeout.count());
  Rebuild rebuild({.job = coordinator_options_.job,
                   .servers = coordinator_options_.servers,
                   .workers = coordinator_options_.workers,
                   .without = {options_.rebuild_without.begin(), options_.rebuild_without.end()},
                   .unix_ms = coordinator_options_.unix_ms()},
                  timeout, Clock::Real().Now());
  std::vector<RegisterRequest> registrations = listener->Registrations();
  std::optional<absl::StatusOr<SchedulerState>> rebuilt =
      rebuild.Poll(registrations, Clock::Real().Now());
  while (!rebuilt.has_value()) {
    if (signal_.Wait(kTickInterval)) return absl::CancelledError("the process was told to end");
    registrations = listener->Registrations();
    rebuilt = rebuild.Poll(registrations, Clock::Real().Now());
  }
  PAWL_ASSIGN_OR_RETURN(const SchedulerState state, *std::move(rebuilt));
  spdlog::warn(
      "state rebuilt from {} servers: {} partitions, {} tables, routing epoch {}; evaluations and "
      "events are lost",
      registrations.size(), state.placement().partitions_size(), state.tables().tables_size(),
      state.placement().epoch());
  return SaveState(*store_, 1, state.SerializeAsString(),
                   [this](MonotonicDuration pause) { return signal_.Wait(pause); });
}

absl::Status SchedulerProcess::StartListening() {
  service_ = std::make_unique<SchedulerService>([this] { return StatusBeforeServing(); });
  service_->SetAuditLog(audit_.get());
  service_->SetCheckpointRoots(AllowedFolders(options_.checkpoint_roots));
  // The nodes of a new job do not look for an earlier scheduler's address.
  absl::StatusOr<Listener> listener = Listen(listen_at_, restored_.has_value() ? address_path_ : "",
                                             security_->Listening(), *service_);
  PAWL_RETURN_IF_ERROR(Annotate(listener.status(), absl::StrCat("--listen=", options_.listen)));
  listener_ = *std::move(listener);
  // The server answers GetStatus, but does not serve yet.
  listener_.server->GetHealthCheckService()->SetServingStatus(false);
  return absl::OkStatus();
}

absl::Status SchedulerProcess::WriteAddress() {
  const std::string own_address = absl::StrCat(listen_at_.host, ":", listener_.port);
  const std::string address = options_.advertise.empty() ? own_address : options_.advertise;
  spdlog::info("job '{}': listening on {}", job_.name(), address);
  PAWL_RETURN_IF_ERROR(
      Annotate(WriteFileDurably(Env::Real(), address_path_, own_address + "\n"), "--data_dir"));
  if (options_.address_file.empty()) return absl::OkStatus();
  return Annotate(WriteFileDurably(Env::Real(), options_.address_file, address + "\n"),
                  "--address_file");
}

absl::StatusOr<GetStatusResponse> SchedulerProcess::StatusBeforeServing() const {
  // A worker that failed would take a status without steps for that of a job that has not started.
  if (restored_.has_value())
    return absl::UnavailableError("the scheduler continues a job and does not serve yet");
  GetStatusResponse status;
  *status.mutable_job() = job_;
  status.set_job_id(job_id_);
  status.set_state(STARTING);
  CheckpointStatus& checkpoint = *status.mutable_checkpoint();
  *status.mutable_security() = security_->Report();
  checkpoint.set_verifying(options_.restore);
  checkpoint.set_parts(verified_.parts);
  checkpoint.set_parts_verified(verified_.parts_done);
  checkpoint.set_bytes(verified_.bytes);
  checkpoint.set_bytes_verified(verified_.bytes_done);
  return status;
}

absl::Status SchedulerProcess::PrepareCheckpointsOrExit() {
  absl::Status status;
  std::atomic<bool> done = false;
  std::thread thread([&] {
    PAWL_FAILPOINT("restore.verifying");
    status = PrepareCheckpoints(Env::Real(), startup_, coordinator_options_, &verified_);
    done = true;
  });
  MonotonicTime next_line = Clock::Real().Now() + kVerifyLogInterval;
  while (!done) {
    if (signal_.Wait(kTickInterval)) {
      // Exits here, where the locals that the thread uses still exist.
      spdlog::info(
          "ended: told to end while the checkpoint was being verified; the job has not started");
      Exit(CodeOfSignal());
    }
    if (Clock::Real().Now() < next_line) continue;
    spdlog::info("verifying {}: {} of {} parts, {} of {} bytes", options_.restore,
                 verified_.parts_done.load(), verified_.parts.load(), verified_.bytes_done.load(),
                 verified_.bytes.load());
    next_line += kVerifyLogInterval;
  }
  thread.join();
  return status;
}

absl::Status SchedulerProcess::Tolerate(const absl::Status& status) const {
  if (status.ok() || !restored_.has_value()) return status;
  spdlog::error("{}", std::string(status.message()));
  return absl::OkStatus();
}

absl::Status SchedulerProcess::StartCoordinator() {
  PAWL_RETURN_IF_ERROR(Tolerate(WriteAddress()));
  if (!restored_.has_value()) {
    PAWL_RETURN_IF_ERROR(PrepareCheckpointsOrExit());
    // An earlier job's result is not this job's.
    std::error_code error;
    std::filesystem::remove(metrics_path_, error);
  }
  starts_from_ = coordinator_options_.restore;
  // An interrupted scheduler may not have set later checkpoints aside; one that has completed a
  // checkpoint has.
  if (restored_.has_value() && restored_->has_restore() &&
      restored_->checkpoint().completed() == 0) {
    starts_from_ = restored_->restore();
  }
  coordinator_options_.gives_tickets = security_->is_tls();
  coordinator_options_.security = [this] { return security_->Report(); };
  coordinator_options_.leads = [this] { return store_->IsLeader(); };
  coordinator_options_.state_is_outdated = [this](const std::string& why) {
    spdlog::error(
        "ended: {}. Restore the newest state to {}, or move that one away and start with --rebuild",
        why, store_->Describe());
    Exit(kExitUsage);
  };
  coordinator_options_.state_changed = [this] {
    if (StateSaver* const saver = notified_saver_.load(); saver != nullptr) saver->Notify();
  };
  servers_ = std::make_unique<GrpcServerCaller>(security_->To(RoleSet(PeerRole::kServer)));
  checkpoint_writer_ =
      std::make_unique<CheckpointWriter>(Env::Real(), AllowedFolders(options_.checkpoint_roots));
  coordinator_options_.write_checkpoint = [this](const std::string& dir,
                                                 CheckpointManifest manifest, uint32_t keep,
                                                 CheckpointWriter::Done done) {
    checkpoint_writer_->Write(dir, std::move(manifest), keep, std::move(done));
  };
  coordinator_ =
      std::make_unique<Coordinator>(std::move(coordinator_options_), Clock::Real(), *servers_,
                                    restored_.has_value() ? &*restored_ : nullptr);
  StateSaver::Callbacks callbacks;
  callbacks.take = [this] { return coordinator_->TakeUnsaved(); };
  callbacks.saved = [this](uint64_t change) { coordinator_->OnStateSaved(change); };
  callbacks.lost = [](const absl::Status& why) { EndAtOnce(why.message()); };
  saver_ = std::make_unique<StateSaver>(*store_, stored_.has_value() ? stored_->revision : 0,
                                        std::move(callbacks));
  notified_saver_ = saver_.get();
  PAWL_RETURN_IF_ERROR(Tolerate(StartMetrics()));
  // Before the nodes get leases, which only DirectUntilEnd lets expire.
  PAWL_RETURN_IF_ERROR(OpenFiles());
  service_->Begin(*coordinator_);
  listener_.server->GetHealthCheckService()->SetServingStatus(true);
  return absl::OkStatus();
}

absl::Status SchedulerProcess::OpenFiles() {
  opener_.Start([this] {
    open_status_ = Tolerate(StartCurve());
    open_status_.Update(Tolerate(SetAsideLaterCheckpoints()));
    // After SetAsideLaterCheckpoints: the scrubber does not read what was set aside.
    if (open_status_.ok()) StartScrubber();
    opened_ = true;
  });
  const MonotonicTime late = Clock::Real().Now() + kOpenTimeout;
  bool is_late = false;
  // DirectUntilEnd heeds the signal.
  while (!opened_ && !signal_.Wait(kTickInterval)) {
    if (is_late || Clock::Real().Now() < late) continue;
    is_late = true;
    spdlog::error("the folder of --curve_file, --tensorboard_dir or checkpoint.dir seems to hang{}",
                  restored_.has_value() ? "; the job continues without it" : "");
    if (restored_.has_value()) break;
  }
  return opened_ ? open_status_ : absl::OkStatus();
}

absl::Status SchedulerProcess::StartMetrics() {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  const std::string flag = absl::StrCat("--metrics_listen=", options_.metrics_listen);
  const absl::StatusOr<HostPort> at = ParseHostPort(options_.metrics_listen);
  PAWL_RETURN_IF_ERROR(Annotate(at.status(), flag));
  const std::string tls_dir = options_.insecure_metrics ? "" : options_.security.tls_dir;
  absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint = MetricsEndpoint::Listen(
      options_.metrics_listen,
      [this] {
        return Metrics(coordinator_->GetStatus(), coordinator_->EventCounts(),
                       coordinator_->CheckpointFiles(), Seconds(saver_->UnsavedFor()));
      },
      tls_dir);
  PAWL_RETURN_IF_ERROR(Annotate(endpoint.status(), flag));
  metrics_ = *std::move(endpoint);
  spdlog::info("metrics at {}://{}:{}/metrics", tls_dir.empty() ? "http" : "https", at->host,
               metrics_->port());
  return absl::OkStatus();
}

absl::Status SchedulerProcess::StartCurve() {
  std::vector<CurveRecorder::Output> outputs;
  std::optional<uint64_t> last_evaluation_step;
  if (!options_.tensorboard_dir.empty()) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    absl::StatusOr<std::unique_ptr<EventFile>> events = EventFile::Create(
        Env::Real(), options_.tensorboard_dir, now.count(), absl::StrCat("pawl.", getpid()));
    PAWL_RETURN_IF_ERROR(Annotate(events.status(), "--tensorboard_dir"));
    outputs.push_back({"--tensorboard_dir", *std::move(events)});
  }
  if (!options_.curve_file.empty()) {
    absl::StatusOr<std::unique_ptr<CurveFile>> lines =
        CurveFile::Open(Env::Real(), options_.curve_file, /*continues=*/restored_.has_value());
    PAWL_RETURN_IF_ERROR(Annotate(lines.status(), "--curve_file"));
    // A new job may be restored from a checkpoint with evaluations of a former one.
    if (restored_.has_value()) last_evaluation_step = (*lines)->last_evaluation_step();
    outputs.push_back({"--curve_file", *std::move(lines)});
  }
  if (outputs.empty()) return absl::OkStatus();
  curve_ = std::make_unique<CurveRecorder>(
      std::move(outputs), [this] { return coordinator_->GetStatus(); }, kCurveInterval,
      /*continues=*/restored_.has_value(), last_evaluation_step);
  return absl::OkStatus();
}

absl::Status SchedulerProcess::SetAsideLaterCheckpoints() {
  if (!starts_from_.has_value()) return absl::OkStatus();
  return Annotate(SetAsideAndLogLaterCheckpoints(Env::Real(), job_, job_id_, *starts_from_),
                  absl::StrCat("checkpoint.dir is ", job_.checkpoint().dir(),
                               ": cannot set aside the later checkpoints there"));
}

void SchedulerProcess::StartScrubber() {
  CheckpointScrubberOptions options;
  options.dir = job_.checkpoint().dir();
  options.job_name = job_.name();
  options.bytes_per_s = options_.scrub_bytes_per_s;
  if (options.dir.empty() || options.bytes_per_s == 0) return;
  CheckpointScrubber::Events events;
  events.may_read = [this] {
    return store_->IsLeader() && coordinator_->state() == RUNNING &&
           checkpoint_writer_->WaitUntilIdle(Clock::Real().Now());
  };
  events.damaged = [this](const CheckpointId& checkpoint, const absl::Status& damage) {
    coordinator_->OnCheckpointDamaged(checkpoint.step, checkpoint.is_final, damage);
  };
  scrubber_ =
      std::make_unique<CheckpointScrubber>(Env::Real(), std::move(options), std::move(events));
}

// The job and its end -------------------------------------------------------------

void SchedulerProcess::DirectUntilEnd() {
  const Clock& clock = Clock::Real();
  std::optional<EndDeadline> deadline;
  while (!coordinator_->ended()) {
    if (signal_.Wait(kTickInterval) && !deadline.has_value()) {
      if (!options_.stop_on_sigterm) {
        saver_->WaitUntilSaved(clock.Now() + kLastSaveTimeout);
        if (opened_) StopCurve();
        EndAtOnce(
            "this scheduler was told to leave; the job continues when a scheduler is started or a "
            "standby takes over");
      }
      coordinator_->Stop("the scheduler was told to end");
      deadline.emplace(clock.Now());
    }
    coordinator_->Tick();
    if (deadline.has_value() && !coordinator_->ended() &&
        deadline->HasPassed(clock.Now(), writing_report_)) {
      EndAtOnce("the state or metrics.json cannot be written");
    }
  }
  listener_.server->GetHealthCheckService()->SetServingStatus(false);
  // The nodes get time to hear of the end.
  const uint64_t linger_ms =
      std::max<uint64_t>(options_.linger_ms, uint64_t{2} * options_.heartbeat_interval_ms);
  const MonotonicTime until = clock.Now() + std::chrono::milliseconds(linger_ms);
  while (!coordinator_->AllNodesGone() && clock.Now() < until) {
    signal_.Wait(kTickInterval);
    coordinator_->Tick();
  }
}

bool SchedulerProcess::StopCurve() {
  return curve_ == nullptr || curve_->Stop(Clock::Real().Now() + kLastSaveTimeout);
}

int SchedulerProcess::ShutDown() {
  const Clock& clock = Clock::Real();
  // Before Close, because the recorder reads the status once more.
  const bool opening_hangs = !opener_.Stop(clock.Now() + kLastSaveTimeout);
  const bool curve_hangs = opening_hangs || !StopCurve();
  coordinator_->Close();
  if (!saver_->WaitUntilSaved(clock.Now() + kLastSaveTimeout))
    EndAtOnce("the state cannot be saved");
  // Shutdown waits for every answer. A late Goodbye's would wait for a store that has just failed.
  coordinator_->StopHoldingAnswers();
  metrics_ = nullptr;
  listener_.guard->Stop();
  listener_.server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  servers_->Shutdown();
  const MonotonicTime files_until = clock.Now() + kLastCheckpointTimeout;
  const bool reading_hangs =
      !opening_hangs && scrubber_ != nullptr && !scrubber_->Stop(files_until);
  const bool writing_hangs = !checkpoint_writer_->WaitUntilIdle(files_until);
  const bool saving_hangs = !saver_->WaitUntilSaved(clock.Now() + kLastSaveTimeout);
  const JobState state = coordinator_->state();
  spdlog::info("ended: {}", JobState_Name(state));
  const int code = state == FAILED ? kExitFailed : kExitDone;
  if (reading_hangs || writing_hangs) {
    spdlog::warn("{}; the folder hangs or is slow",
                 writing_hangs ? "a checkpoint is still being written, or old ones deleted"
                               : "a checkpoint is still being read");
    Exit(code);
  }
  if (saving_hangs) {
    spdlog::warn("the last change of the nodes that left is not saved; the store seems to hang");
    Exit(code);
  }
  if (curve_hangs) {
    spdlog::warn("the folder of --curve_file, --tensorboard_dir{} seems to hang",
                 opening_hangs ? " or checkpoint.dir" : "");
    Exit(code);
  }
  curve_ = nullptr;
  scrubber_ = nullptr;
  checkpoint_writer_ = nullptr;
  return code;
}

}  // namespace pawl
