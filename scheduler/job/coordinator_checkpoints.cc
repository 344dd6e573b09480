// Checkpoints, and a job that starts from one.
#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/checkpoint/manifest_builder.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "spdlog/spdlog.h"

namespace pawl {

Ticket Coordinator::Checkpoint(const CheckpointRequest& request, Done<CheckpointResponse> done) {
  Rpc<CheckpointResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = CheckCanWait(); !status.ok()) return rpc.Answer(status);
  absl::StatusOr<std::string> dir = checkpoints_.Request(request.dir(), CheckpointProgress());
  if (!dir.ok()) return rpc.Answer(dir.status());
  return rpc.Suspend(pending_.checkpoints, *std::move(dir));
}

void Coordinator::OnCheckpointDamaged(uint64_t step, bool is_final, const absl::Status& damage) {
  MutexLock lock(mu_);
  checkpoints_.OnDamaged(step, is_final);
  spdlog::error("{}; another checkpoint is made in its place", std::string(damage.message()));
}

CheckpointFileCounts Coordinator::CheckpointFiles() const {
  MutexLock lock(mu_);
  return checkpoints_.file_counts();
}

CheckpointDirector::Progress Coordinator::CheckpointProgress() const {
  CheckpointDirector::Progress progress;
  progress.state = state_.state();
  for (const Node* node : membership_.Present(SERVER_ROLE))
    progress.step = std::max(progress.step, node->counters.step());
  for (const Node* node : membership_.Present(WORKER_ROLE))
    progress.last_step = std::max(progress.last_step, node->progress.steps_total());
  progress.has_training = ranks_.AnyHosted();
  return progress;
}

void Coordinator::CheckpointOnServers(const CheckpointDirector::Order& order,
                                      DeferredActions& actions) {
  CheckpointOnServerRequest request;
  request.set_job_id(options_.job_id);
  request.set_job_name(options_.job.name());
  request.set_dir(order.dir);
  request.set_step(order.step);
  request.set_is_final(order.is_final);
  const MonotonicDuration timeout =
      ReadTimeout(order.is_final ? kEndCheckpointTimeout : kCheckpointTimeout);
  rounds_.Gather(
      order.Text(), {running_.Now(), timeout, kCheckpointCallTimeout}, kCheckpointRpc, request,
      [this, order, before = EvaluationsBefore(order, evaluations_)](
          const absl::StatusOr<std::vector<CheckpointOnServerResponse>>& answers,
          DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!answers.ok()) {
          CarryOut(checkpoints_.OnFailed(order, answers.status(), running_.Now()), actions);
          return;
        }
        std::vector<CheckpointPart> parts;
        for (const CheckpointOnServerResponse& answer : *answers)
          parts.insert(parts.end(), answer.parts().begin(), answer.parts().end());
        WriteCheckpoint(order, before, std::move(parts), actions);
      },
      actions);
}

void Coordinator::WriteCheckpoint(const CheckpointDirector::Order& order,
                                  const StoredEvaluations& evaluations_before,
                                  std::vector<CheckpointPart> parts, DeferredActions& actions) {
  absl::StatusOr<CheckpointManifest> manifest =
      BuildManifest(order, std::move(parts), evaluations_before,
                    {.job = options_.job,
                     .job_id = options_.job_id,
                     .last_incarnation = membership_.last_incarnation(),
                     .tables = tables_.Save(),
                     .evaluations = evaluations_});
  if (!manifest.ok()) {
    CarryOut(checkpoints_.OnFailed(order, manifest.status(), running_.Now()), actions);
    return;
  }
  actions.Add([this, order, manifest = *std::move(manifest)]() mutable {
    options_.write_checkpoint(
        order.dir, std::move(manifest), order.keep,
        [this, order](absl::StatusOr<std::string> folder) { OnCheckpointWritten(order, folder); });
  });
}

void Coordinator::OnCheckpointWritten(const CheckpointDirector::Order& order,
                                      const absl::StatusOr<std::string>& folder) {
  Section section(*this);
  if (state_.ended()) return;
  const uint64_t unix_ms = options_.unix_ms == nullptr ? 0 : options_.unix_ms();
  CarryOut(folder.ok() ? checkpoints_.OnCompleted(order, *folder, unix_ms)
                       : checkpoints_.OnFailed(order, folder.status(), running_.Now()),
           section.actions());
}

void Coordinator::CarryOut(const CheckpointDirector::Outcome& outcome, DeferredActions& actions) {
  if (outcome.changed) gate_.OnChange();
  if (!outcome.answered_dir.empty())
    pending_.checkpoints.AnswerKey(outcome.answered_dir, outcome.answer, actions);
  if (outcome.end_decided) OnEndCheckpointDecided(actions);
}

void Coordinator::StartFromCheckpoint(const StoredRestore& restore, const SchedulerState& state) {
  checkpoints_.StartFrom(restore, state.tables().last_id());
  StoredMembership membership;
  // The partitions refuse incarnations that are not higher than those they know.
  membership.set_last_incarnation(state.membership().last_incarnation());
  membership_.Restore(membership, running_.Now(), options_.lease);
  // The tables are in the partitions once these are loaded.
  StoredTables tables = state.tables();
  for (StoredTable& table : *tables.mutable_tables()) table.set_ready(false);
  tables_.Restore(tables);
  // The evaluation of a checkpoint is the first of its job.
  if (!options_.job.evaluation().only()) evaluations_.Restore(state.evaluations());
}

}  // namespace pawl
