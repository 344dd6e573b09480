#include "scheduler/startup/startup.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/checkpoint/restore.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

namespace pawl {

namespace {

bool HasEnded(const SchedulerState& state) {
  return state.state() == COMPLETED || state.state() == FAILED || state.state() == STOPPED;
}

// The servers that a rebuilt state comes from do not know the checkpoint.
bool IsFrom(const SchedulerState& state, const std::string& restore) {
  return restore.empty() || state.rebuilt() ||
         (state.has_restore() && IsSource(restore, state.restore()));
}

absl::StatusOr<SchedulerState> Parse(const StoredState& stored, const Startup& startup) {
  SchedulerState state;
  if (!state.ParseFromString(stored.state))
    return absl::DataLossError(absl::StrCat(startup.place, " does not hold a scheduler's state"));
  return state;
}

}  // namespace

absl::StatusOr<std::optional<SchedulerState>> StateToResume(
    const std::optional<StoredState>& stored, const CoordinatorOptions& options,
    const Startup& startup) {
  if (!stored.has_value()) return std::nullopt;
  PAWL_ASSIGN_OR_RETURN(SchedulerState state, Parse(*stored, startup));
  const std::string& restore = startup.restore;
  const bool has_ended = HasEnded(state);
  const bool same_restore = IsFrom(state, restore);
  if (state.closed() && (startup.restart_ended_job || !same_restore)) return std::nullopt;
  if (!has_ended && !same_restore) {
    return absl::FailedPreconditionError(
        absl::StrCat(startup.place, " holds the state of job '", state.job().name(),
                     "', which has not ended and was not started with --restore=", restore,
                     "; use another --data_dir, or omit --restore to continue that job"));
  }
  const bool same = google::protobuf::util::MessageDifferencer::Equals(state.job(), options.job) &&
                    state.servers() == options.servers && state.workers() == options.workers;
  if (same) return state;
  if (state.closed()) return std::nullopt;
  return absl::FailedPreconditionError(
      absl::StrCat(startup.place, " holds the state of job '", state.job().name(), "', which ",
                   has_ended ? "has ended, but some nodes may not know," : "has not ended",
                   " and differs from --job=", startup.job, " with these flags; start it as before",
                   has_ended ? " once, to tell them" : "", ", or use another place"));
}

absl::StatusOr<bool> StandsByFor(const std::optional<StoredState>& stored,
                                 const CoordinatorOptions& options, const Startup& startup) {
  if (!stored.has_value()) return false;
  PAWL_ASSIGN_OR_RETURN(const SchedulerState state, Parse(*stored, startup));
  if (HasEnded(state)) return false;
  PAWL_ASSIGN_OR_RETURN(const std::optional<SchedulerState> resumed,
                        StateToResume(stored, options, startup));
  return resumed.has_value();
}

std::string ResumeWarning(const SchedulerState& state, const Startup& startup) {
  if (!HasEnded(state) || state.closed()) return "";
  std::string flag;
  if (!IsFrom(state, startup.restore)) {
    flag = absl::StrCat("--restore=", startup.restore);
  } else if (startup.restart_ended_job) {
    flag = "--restart_ended_job";
  } else {
    return "";
  }
  return absl::StrCat(flag, " is ignored: ", startup.place, " holds the state of job '",
                      state.job().name(),
                      "', which has ended, and some nodes may not know. This scheduler tells them "
                      "and ends; repeat the command then");
}

absl::Status PrepareCheckpoints(Env& env, const Startup& startup, CoordinatorOptions& options,
                                VerifyProgress* progress) {
  if (startup.restore.empty()) {
    if (options.job.evaluation().only()) {
      return absl::FailedPreconditionError(
          "evaluation.only is set, but no checkpoint is named; add --restore");
    }
    const std::string& dir = options.job.checkpoint().dir();
    if (dir.empty()) return absl::OkStatus();
    const CheckpointStore store(env, dir);
    PAWL_ASSIGN_OR_RETURN(const std::string newest, store.Newest(options.job.name()));
    if (newest.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint.dir is ", dir, ", which holds checkpoints of an earlier run of '",
        options.job.name(), "', the newest is ", newest, "; continue from it with --restore=", dir,
        ", or name another folder, or delete it"));
  }
  const std::string flag = absl::StrCat("--restore=", startup.restore);
  absl::StatusOr<FoundCheckpoint> found =
      FindCheckpoint(env, startup.restore, options.job.name(), progress);
  PAWL_RETURN_IF_ERROR(Annotate(found.status(), flag));
  PAWL_RETURN_IF_ERROR(Annotate(CheckFits(options.job, found->manifest), flag));
  spdlog::info("starting from checkpoint {} in {}, of step {}", found->name, found->dir,
               found->manifest.step());
  if (const std::string warning = RestoreWarning(env, *found);
      !warning.empty() && !options.job.evaluation().only())
    spdlog::warn("{}", warning);
  options.restore = MakeStoredRestore(*found, options.job);
  options.restore_state = std::move(found->state);
  return absl::OkStatus();
}

absl::Status SetAsideAndLogLaterCheckpoints(Env& env, const Job& job, uint64_t job_id,
                                            const StoredRestore& restore) {
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> aside,
                        SetAsideLaterCheckpoints(env, job, job_id, restore));
  for (const std::string& name : aside) {
    spdlog::warn("{} in {} belongs to an abandoned run and is set aside", name,
                 job.checkpoint().dir());
  }
  return absl::OkStatus();
}

}  // namespace pawl
