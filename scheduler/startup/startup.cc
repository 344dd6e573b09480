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

absl::StatusOr<std::optional<SchedulerState>> StateOfThisJob(
    const std::optional<StoredState>& stored, const CoordinatorOptions& options,
    const Startup& startup) {
  if (!stored.has_value()) return std::nullopt;
  SchedulerState state;
  if (!state.ParseFromString(stored->state)) {
    return absl::DataLossError(
        absl::StrCat(startup.place, " holds something else than a scheduler's state"));
  }
  const std::string& restore = startup.restore;
  const bool is_over =
      state.state() == COMPLETED || state.state() == FAILED || state.state() == STOPPED;
  const bool begins_alike =
      restore.empty() || (state.has_restore() && IsSource(restore, state.restore()));
  if (state.closed() && (startup.begin_anew || !begins_alike)) return std::nullopt;
  if (!is_over && !begins_alike) {
    return absl::FailedPreconditionError(
        absl::StrCat(startup.place, " holds the state of job '", state.job().name(),
                     "', which has not ended and was not begun with --restore=", restore,
                     "; use another --data_dir, or leave --restore out to go on with that job"));
  }
  const bool same = google::protobuf::util::MessageDifferencer::Equals(state.job(), options.job) &&
                    state.servers() == options.servers && state.workers() == options.workers;
  if (same) return state;
  if (is_over) return std::nullopt;
  return absl::FailedPreconditionError(
      absl::StrCat(startup.place, " holds the state of job '", state.job().name(),
                   "', which has not ended and is not the same as --job=", startup.job,
                   " with these flags; start it as before, or use another place"));
}

absl::Status PrepareCheckpoints(Env& env, const Startup& startup, CoordinatorOptions& options,
                                VerifyProgress* progress) {
  if (startup.restore.empty()) {
    const std::string& dir = options.job.checkpoint().dir();
    if (dir.empty()) return absl::OkStatus();
    const CheckpointStore store(env, dir);
    PAWL_ASSIGN_OR_RETURN(const std::string newest, store.Newest(options.job.name()));
    if (newest.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint.dir is ", dir, ", which holds checkpoints of an earlier run of '",
        options.job.name(), "', the newest one ", newest, "; go on from there with --restore=", dir,
        ", or name another folder, or delete it"));
  }
  const std::string flag = absl::StrCat("--restore=", startup.restore);
  absl::StatusOr<FoundCheckpoint> found =
      FindCheckpoint(env, startup.restore, options.job.name(), progress);
  PAWL_RETURN_IF_ERROR(Annotate(found.status(), flag));
  PAWL_RETURN_IF_ERROR(Annotate(CheckFits(options.job, found->manifest), flag));
  spdlog::info("beginning with the checkpoint {} in {}, of step {}", found->name, found->dir,
               found->manifest.step());
  if (const std::string warning = WarningOf(env, *found); !warning.empty())
    spdlog::warn("{}", warning);
  options.restore = RestoreOf(*found, options.job);
  options.restore_state = std::move(found->state);
  return absl::OkStatus();
}

absl::Status SetLaterCheckpointsAside(Env& env, const Job& job, uint64_t job_id,
                                      const StoredRestore& restore) {
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> aside,
                        SetLaterAside(env, job, job_id, restore));
  for (const std::string& name : aside) {
    spdlog::warn("{} in {} is of a run that is given up, and is set aside", name,
                 job.checkpoint().dir());
  }
  return absl::OkStatus();
}

}  // namespace pawl
