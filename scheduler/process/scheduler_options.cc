#include "scheduler/process/scheduler_options.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/security/allowed_folders.h"
#include "scheduler/membership/membership.h"

namespace pawl {
namespace {

// Shorter heartbeat intervals load the scheduler; longer leases delay the notice of a death.
constexpr uint32_t kMinHeartbeatIntervalMs = 10;
constexpr uint32_t kMaxLeaseMs = 600000;
constexpr double kMaxTimeoutS = 1e6;

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

absl::Status SetNodes(const SchedulerOptions& options, CoordinatorOptions& made) {
  if (options.workers < -1 || options.workers > static_cast<int32_t>(kMaxWorkers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", options.workers, " must be 0 to ", kMaxWorkers));
  }
  const bool serve_only = IsServeOnly(made.job);
  made.workers = options.workers >= 0 ? static_cast<uint32_t>(options.workers) : serve_only ? 0 : 1;
  if (made.workers == 0 && !serve_only) {
    return absl::InvalidArgumentError("--workers=0: a job that trains needs at least one worker");
  }
  made.servers = options.servers;
  if (made.servers < 1 || made.servers > kMaxServers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--servers=", made.servers, " must be 1 to ", kMaxServers));
  }
  return absl::OkStatus();
}

absl::Status SetTimes(const SchedulerOptions& options, CoordinatorOptions& made) {
  if (options.heartbeat_interval_ms < kMinHeartbeatIntervalMs ||
      options.lease_ms < uint64_t{2} * options.heartbeat_interval_ms ||
      options.lease_ms > kMaxLeaseMs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--heartbeat_interval_ms=", options.heartbeat_interval_ms, " --lease_ms=", options.lease_ms,
        ": the interval must be at least ", kMinHeartbeatIntervalMs,
        ", and the lease at least twice the interval and at most ", kMaxLeaseMs));
  }
  made.heartbeat_interval = std::chrono::milliseconds(options.heartbeat_interval_ms);
  made.lease = std::chrono::milliseconds(options.lease_ms);
  PAWL_ASSIGN_OR_RETURN(made.start_timeout,
                        Milliseconds("start_timeout_ms", options.start_timeout_ms, 1,
                                     "the job would fail before its servers and workers can join"));
  PAWL_RETURN_IF_ERROR(Milliseconds("linger_ms", options.linger_ms, 0, "").status());
  PAWL_ASSIGN_OR_RETURN(made.worker_takeover_grace,
                        Timeout("worker_takeover_grace_s", options.worker_takeover_grace_s));
  PAWL_ASSIGN_OR_RETURN(made.worker_return_timeout,
                        Timeout("worker_return_timeout_s", options.worker_return_timeout_s));
  PAWL_ASSIGN_OR_RETURN(made.recovery_timeout,
                        Timeout("recovery_timeout_s", options.recovery_timeout_s));
  return absl::OkStatus();
}

// A checkpoint that would be refused only when it is made would come too late.
absl::Status CheckFolders(const SchedulerOptions& options, const Job& job) {
  const AllowedFolders folders(options.checkpoint_roots);
  if (!job.checkpoint().dir().empty()) {
    PAWL_RETURN_IF_ERROR(Annotate(folders.Check(job.checkpoint().dir()),
                                  absl::StrCat(options.job, ": checkpoint.dir")));
  }
  if (options.restore.empty()) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path restore = std::filesystem::absolute(options.restore, error);
  return Annotate(folders.Check(restore.string()), "--restore");
}

}  // namespace

absl::StatusOr<CoordinatorOptions> MakeCoordinatorOptions(const SchedulerOptions& options) {
  CoordinatorOptions made;
  if (options.job.empty()) return absl::InvalidArgumentError("--job=FILE is missing");
  PAWL_ASSIGN_OR_RETURN(made.job, ReadJobFile(options.job));
  PAWL_RETURN_IF_ERROR(SetNodes(options, made));
  PAWL_RETURN_IF_ERROR(SetTimes(options, made));
  if (options.replicas != 0) made.job.set_replicas(options.replicas);
  if (made.job.replicas() > made.servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replicas is ", made.job.replicas(), ", but --servers=", made.servers,
        ": each replica of a partition needs a server of its own; start more servers or lower it"));
  }
  FillDefaults(made.job, made.workers);
  const JobValidationOptions validation = {.check_files = false, .workers = made.workers};
  PAWL_RETURN_IF_ERROR(Annotate(ValidateJob(made.job, validation), options.job));
  PAWL_RETURN_IF_ERROR(CheckFolders(options, made.job));
  made.unix_ms = [] {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  };
  return made;
}

}  // namespace pawl
