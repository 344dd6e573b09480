#include "scheduler/checkpoint/checkpoint_director.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_validation.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Checkpoints are cut at multiples of this step: with ALLREDUCE the servers have the dense
// parameters only there.
uint64_t CutMultiple(const Job& job) {
  if (job.dense_path() != ALLREDUCE) return 1;
  return std::max<uint64_t>(job.all_reduce().write_back_steps(), 1);
}

}  // namespace

CheckpointDirector::CheckpointDirector(const Job& job, bool enabled, MonotonicTime now)
    : policy_(job.checkpoint()),
      enabled_(enabled),
      serve_only_(IsServeOnly(job)),
      checkpoints_(job.checkpoint(), now, CutMultiple(job),
                   /*end_is_as_trained=*/!job.evaluation().has_early_stopping()) {}

absl::StatusOr<std::string> CheckpointDirector::Request(absl::string_view dir,
                                                        const Progress& progress) {
  PAWL_ASSIGN_OR_RETURN(std::string folder, checkpoints_.DirOf(dir));
  if (!enabled_) return absl::UnimplementedError("this scheduler makes no checkpoints");
  if (progress.state != RUNNING) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job is ", JobState_Name(progress.state),
                     "; a checkpoint is a cut between two steps of its training"));
  }
  if (serve_only_ && !progress.has_training) {
    return absl::FailedPreconditionError(
        "the job only serves tables and no worker trains in it: a checkpoint is a cut between two "
        "steps of a training");
  }
  PAWL_RETURN_IF_ERROR(checkpoints_.Request(folder));
  return folder;
}

std::optional<CheckpointDirector::Order> CheckpointDirector::Next(const Progress& progress,
                                                                  MonotonicTime now) {
  if (!enabled_ || progress.state != RUNNING) return std::nullopt;
  // Without a training no step ends, so no cut would come.
  if (serve_only_ && !progress.has_training) return std::nullopt;
  if (repairs_.IsDue(now)) {
    // If too many folders are requested, the next call requests this one again.
    checkpoints_.Request(policy_.dir()).IgnoreError();
  }
  return checkpoints_.Next(now, progress.step, progress.last_step);
}

// The end -----------------------------------------------------------------------

bool CheckpointDirector::WantsEnd() const {
  return enabled_ && !policy_.dir().empty() && !checkpoints_.end_is_decided();
}

CheckpointDirector::EndOrder CheckpointDirector::BeginEnd(uint64_t step, MonotonicDuration timeout,
                                                          MonotonicTime now) {
  if (restored_from_.has_value() && IsOwnDir(restored_from_->dir()) &&
      restored_from_->step() == step && CheckpointStore::IsEndCheckpoint(restored_from_->name())) {
    // There was nothing left to train.
    checkpoints_.SetEndFolder(absl::StrCat(policy_.dir(), "/", restored_from_->name()));
    return {};
  }
  end_attempts_.Begin(timeout, now);
  EndOrder end;
  if (checkpoints_.in_progress().has_value()) end.replaced_dir = checkpoints_.in_progress()->dir;
  end.order = checkpoints_.BeginEnd(step);
  return end;
}

CheckpointDirector::EndProgress CheckpointDirector::ContinueEnd(MonotonicTime now) {
  const std::optional<Order> order = checkpoints_.in_progress();
  if (!order.has_value() || !order->is_final) return {};
  if (const absl::Status late = end_attempts_.CheckTime(now); !late.ok())
    return {.order = std::nullopt, .outcome = GiveUpEnd(*order, late)};
  if (!end_attempts_.StartNext(now)) return {};
  return {.order = order, .outcome = {}};
}

CheckpointDirector::Outcome CheckpointDirector::OnEndFailed(const Order& order,
                                                            const absl::Status& status,
                                                            MonotonicTime now) {
  if (!EndCheckpointAttempts::IsRetryable(status)) return GiveUpEnd(order, status);
  if (end_attempts_.OnFailed(status, now)) {
    spdlog::log(
        EndCheckpointAttempts::IsTransient(status) ? spdlog::level::info : spdlog::level::warn,
        "{} in {} is tried again: {}", order.Text(), order.dir, status.ToString());
  }
  return {};
}

CheckpointDirector::Outcome CheckpointDirector::GiveUpEnd(const Order& order,
                                                          const absl::Status& status) {
  spdlog::error("{} in {} failed: {}", order.Text(), order.dir, status.ToString());
  checkpoints_.OnEndFailed(status);
  return {.changed = true, .answered_dir = order.dir, .answer = status, .end_decided = true};
}

// Outcomes ----------------------------------------------------------------------

CheckpointDirector::Outcome CheckpointDirector::OnCompleted(const Order& order,
                                                            const std::string& folder,
                                                            uint64_t unix_ms) {
  // An end that was given up is not taken back.
  if (order.is_final && !checkpoints_.IsInProgress(order)) return {};
  checkpoints_.OnCompleted(order, folder, unix_ms);
  if (IsOwnDir(order.dir)) repairs_.OnCompleted(order.step, order.is_final);
  spdlog::info("{} is complete in {}", order.Text(), folder);
  CheckpointResponse response;
  response.set_folder(folder);
  response.set_step(order.step);
  return {.changed = true,
          .answered_dir = order.dir,
          .answer = response,
          .end_decided = order.is_final};
}

CheckpointDirector::Outcome CheckpointDirector::OnFailed(const Order& order,
                                                         const absl::Status& status,
                                                         MonotonicTime now) {
  if (!checkpoints_.IsInProgress(order)) {
    // It was given up, or the end's has taken its place, also for the callers that wait for the
    // job's folder.
    if (order.is_final || IsOwnDir(order.dir)) return {};
    return {.answered_dir = order.dir, .answer = status};
  }
  if (order.is_final) return OnEndFailed(order, status, now);
  // A transient failure: callers wait for the next attempt.
  if (absl::IsOutOfRange(status) || absl::IsAborted(status)) {
    spdlog::info("{} is tried again later: {}", order.Text(), status.ToString());
    if (absl::IsOutOfRange(status)) {
      checkpoints_.OnTooLate(now);
    } else {
      checkpoints_.OnMoved(now);
    }
    return {};
  }
  spdlog::warn("{} in {} failed: {}", order.Text(), order.dir, status.ToString());
  checkpoints_.OnFailed(status);
  if (IsOwnDir(order.dir)) repairs_.OnFailed(now);
  return {.changed = true, .answered_dir = order.dir, .answer = status};
}

// State -------------------------------------------------------------------------

void CheckpointDirector::StartFrom(const StoredRestore& restore, uint32_t last_table) {
  restored_from_ = restore;
  restored_from_->set_loaded(false);
  restored_from_->set_last_table(last_table);
  checkpoints_.StartAfter(restore.step());
}

CheckpointStatus CheckpointDirector::Status() const {
  CheckpointStatus status = checkpoints_.Status();
  if (restored_from_.has_value()) {
    status.set_restored_from(absl::StrCat(restored_from_->dir(), "/", restored_from_->name()));
    status.set_restored_step(restored_from_->step());
  }
  return status;
}

std::string CheckpointDirector::EndText() const {
  const CheckpointStatus status = checkpoints_.Status();
  return status.end_folder().empty() ? absl::StrCat("none: ", status.end_failure())
                                     : status.end_folder();
}

void CheckpointDirector::Save(SchedulerState& stored) const {
  if (restored_from_.has_value()) *stored.mutable_restore() = *restored_from_;
  *stored.mutable_checkpoint() = checkpoints_.Status();
}

void CheckpointDirector::Restore(const SchedulerState& stored) {
  if (stored.has_restore()) restored_from_ = stored.restore();
  checkpoints_.Restore(stored.checkpoint());
}

}  // namespace pawl
