// Checkpoints, and beginning with one.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

bool AnyRankHasAHost(const LogicalWorkers& logical_workers) {
  for (uint32_t rank = 0; rank < logical_workers.total(); ++rank) {
    if (!logical_workers.HostOf(rank).empty()) return true;
  }
  return false;
}

}  // namespace

Ticket Coordinator::Checkpoint(const CheckpointRequest& request, Done<CheckpointResponse> done) {
  Rpc<CheckpointResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  absl::StatusOr<std::string> dir = checkpoints_.DirOf(request.dir());
  absl::Status status = CheckCanWait();
  if (status.ok()) status = dir.status();
  if (status.ok() && options_.write_checkpoint == nullptr) {
    status = absl::UnimplementedError("this scheduler makes no checkpoints");
  }
  if (status.ok() && state_.state() != RUNNING) {
    status = absl::FailedPreconditionError(
        absl::StrCat("the job is ", JobState_Name(state_.state()),
                     "; a checkpoint is a cut between two steps of its training"));
  }
  if (status.ok() && serve_only_ && !AnyRankHasAHost(logical_workers_)) {
    status = absl::FailedPreconditionError(
        "the job only serves tables, and no worker trains in it: a checkpoint is a cut between two "
        "steps of a training, and "
        "there are none");
  }
  if (status.ok()) status = checkpoints_.Request(*dir);
  if (!status.ok()) return rpc.Answer(status);
  return rpc.Suspend(pending_.checkpoints, *std::move(dir));
}

void Coordinator::OnCheckpointDamaged(uint64_t step, bool of_end, const absl::Status& damage) {
  MutexLock lock(mu_);
  repairs_.OnDamaged(step, of_end);
  spdlog::error("{}; another checkpoint is made in its place", std::string(damage.message()));
}

CheckpointFileCounts Coordinator::CheckpointFiles() const {
  MutexLock lock(mu_);
  return repairs_.counts();
}

void Coordinator::RequestRepairIfDue(MonotonicTime now) {
  if (!repairs_.IsDue(now) || (serve_only_ && !AnyRankHasAHost(logical_workers_))) return;
  // If too many folders are waited for, the next tick asks again.
  checkpoints_.Request(options_.job.checkpoint().dir()).IgnoreError();
}

void Coordinator::BeginCheckpointIfDue(MonotonicTime now, DeferredActions& actions) {
  if (options_.write_checkpoint == nullptr || state_.state() != RUNNING) return;
  RequestRepairIfDue(now);
  uint64_t step = 0;
  uint64_t last_step = 0;
  for (const Node* node : membership_.Present(SERVER_ROLE))
    step = std::max(step, node->counters.step());
  for (const Node* node : membership_.Present(WORKER_ROLE))
    last_step = std::max(last_step, node->progress.steps_total());
  const std::optional<Checkpoints::Order> order = checkpoints_.Next(now, step, last_step);
  if (order.has_value()) CheckpointOnServers(*order, actions);
}

void Coordinator::CheckpointOnServers(const Checkpoints::Order& order, DeferredActions& actions) {
  CheckpointOnServerRequest request;
  request.set_job_id(options_.job_id);
  request.set_job_name(options_.job.name());
  request.set_dir(order.dir);
  request.set_step(order.step);
  request.set_of_end(order.of_end);
  const MonotonicDuration timeout = order.of_end ? kEndCheckpointTimeout : kCheckpointTimeout;
  rounds_.Gather<CheckpointOnServerResponse>(
      order.Text(), {running_.Now(), timeout, kCheckpointCallTimeout}, request,
      &ServerCaller::Checkpoint,
      [this, order, before = order.of_end ? EvaluationsBeforeEnd() : evaluations_.Save()](
          const absl::StatusOr<std::vector<CheckpointOnServerResponse>>& answers,
          DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!answers.ok()) {
          CheckpointHasFailed(order, answers.status(), actions);
          return;
        }
        std::vector<CheckpointPart> parts;
        for (const CheckpointOnServerResponse& answer : *answers) {
          parts.insert(parts.end(), answer.parts().begin(), answer.parts().end());
        }
        WriteCheckpoint(order, before, std::move(parts), actions);
      },
      actions);
}

void Coordinator::WriteCheckpoint(const Checkpoints::Order& order,
                                  const StoredEvaluations& evaluations_before,
                                  std::vector<CheckpointPart> parts, DeferredActions& actions) {
  std::sort(parts.begin(), parts.end(), [](const CheckpointPart& a, const CheckpointPart& b) {
    return a.partition() < b.partition();
  });
  // Servers answer by the routing that they act by, which may be newer than the question's.
  bool complete = parts.size() == options_.job.partitions();
  for (size_t i = 0; complete && i < parts.size(); ++i) complete = parts[i].partition() == i;
  if (!complete) {
    CheckpointHasFailed(
        order, absl::AbortedError("partitions moved while their parts were written"), actions);
    return;
  }
  CheckpointManifest manifest;
  manifest.set_job_id(options_.job_id);
  manifest.set_job_name(options_.job.name());
  manifest.set_step(order.step);
  manifest.set_of_end(order.of_end);
  manifest.set_job(options_.job.SerializeAsString());
  for (const TableCatalogue::Entry* table : tables_.All()) *manifest.add_tables() = table->spec;
  for (CheckpointPart& part : parts) *manifest.add_parts() = std::move(part);
  manifest.set_scheduler_state(StateAt(order, evaluations_before).SerializeAsString());
  actions.Add([this, order, manifest = std::move(manifest)]() mutable {
    options_.write_checkpoint(
        order.dir, std::move(manifest), order.keep,
        [this, order](absl::StatusOr<std::string> folder) { CheckpointIsWritten(order, folder); });
  });
}

SchedulerState Coordinator::StateAt(const Checkpoints::Order& order,
                                    const StoredEvaluations& evaluations_before) const {
  SchedulerState state;
  // All that the parts know of are among them.
  state.mutable_membership()->set_last_incarnation(membership_.last_incarnation());
  *state.mutable_tables() = tables_.Save();
  // Nobody had reached the step when the cut was asked for, or everybody had come to the end there.
  // Evaluations before it came to their end before it; one of that very step is made again. But one
  // that was the best at the end counts: its parameters are kept, and a longer job that has no
  // pause there would not know of it.
  Evaluations evaluations(options_.job);
  evaluations.Restore(evaluations_before);
  uint64_t next = std::max<uint64_t>(evaluations_before.next(), 1);
  // Numbers do not tell them apart; see Evaluations::Find.
  const uint64_t known_to =
      evaluations_before.results().empty() ? 0 : evaluations_before.results().rbegin()->step();
  for (const EvaluationResult& result : evaluations_.results()) {
    const bool is_at_end = order.of_end && result.step() == order.step;
    if (result.step() <= known_to || (result.step() >= order.step && !is_at_end)) continue;
    const bool improved = evaluations.Observe(result).improved;
    next = is_at_end ? result.evaluation() : result.evaluation() + 1;
    if (is_at_end && !improved) break;
    if (improved) evaluations.BestIsKept();
    evaluations.Publish(result);
  }
  *state.mutable_evaluations() = evaluations.Save();
  state.mutable_evaluations()->set_next(next);
  return state;
}

void Coordinator::CheckpointIsWritten(const Checkpoints::Order& order,
                                      const absl::StatusOr<std::string>& folder) {
  Section section(*this);
  if (state_.over()) return;
  if (!folder.ok()) {
    CheckpointHasFailed(order, folder.status(), section.actions());
    return;
  }
  if (order.of_end && !checkpoints_.IsUnderWay(order)) return;
  checkpoints_.Completed(order, *folder, options_.unix_ms == nullptr ? 0 : options_.unix_ms());
  if (order.dir == options_.job.checkpoint().dir()) repairs_.OnCompleted(order.step, order.of_end);
  gate_.Changed();
  spdlog::info("{} is complete in {}", order.Text(), *folder);
  CheckpointResponse response;
  response.set_folder(*folder);
  response.set_step(order.step);
  pending_.checkpoints.AnswerIf([&](const std::string& dir) { return dir == order.dir; }, response,
                                section.actions());
  if (order.of_end) EndCheckpointIsDecided(section.actions());
}

void Coordinator::CheckpointHasFailed(const Checkpoints::Order& order, const absl::Status& status,
                                      DeferredActions& actions) {
  if (!checkpoints_.IsUnderWay(order)) {
    // The end's has taken its place, also for who waits in the job's folder, or has been given up.
    if (order.of_end || order.dir == options_.job.checkpoint().dir()) return;
    pending_.checkpoints.AnswerIf([&](const std::string& dir) { return dir == order.dir; }, status,
                                  actions);
    return;
  }
  if (order.of_end) {
    EndCheckpointHasFailed(order, status, actions);
    return;
  }
  // A matter of the moment; whoever waits waits for the next attempt.
  if (absl::IsOutOfRange(status) || absl::IsAborted(status)) {
    spdlog::info("checkpoint of step {} is tried again later: {}", order.step, status.ToString());
    if (absl::IsOutOfRange(status)) {
      checkpoints_.TooLate();
    } else {
      checkpoints_.Moved();
    }
    return;
  }
  spdlog::warn("checkpoint of step {} in {} came to nothing: {}", order.step, order.dir,
               status.ToString());
  checkpoints_.Failed(status);
  if (order.dir == options_.job.checkpoint().dir()) repairs_.OnFailed(running_.Now());
  gate_.Changed();
  pending_.checkpoints.AnswerIf([&](const std::string& dir) { return dir == order.dir; }, status,
                                actions);
}

StoredEvaluations Coordinator::EvaluationsBeforeEnd() const {
  const std::deque<EvaluationResult>& results = evaluations_.results();
  // From the first one on, but for what the last step's has meant; not if the first ones are
  // forgotten.
  return results.empty() || results.front().evaluation() == 1 ? StoredEvaluations()
                                                              : evaluations_.Save();
}

// Startup with a checkpoint -----------------------------------------------------

void Coordinator::BeginWith(const StoredRestore& restore, const SchedulerState& state) {
  restore_ = restore;
  restore_->set_loaded(false);
  restore_->set_last_table(state.tables().last_id());
  StoredMembership membership;
  // The partitions refuse lives that are not newer than those that they know.
  membership.set_last_incarnation(state.membership().last_incarnation());
  membership_.Restore(membership, running_.Now(), options_.lease);
  // They are in the partitions once these are loaded.
  StoredTables tables = state.tables();
  for (StoredTable& table : *tables.mutable_tables()) table.set_ready(false);
  tables_.Restore(tables);
  evaluations_.Restore(state.evaluations());
  checkpoints_.BeginAfter(restore.step());
}

void Coordinator::LoadOnServers(DeferredActions& actions) {
  LoadCheckpointRequest request;
  request.set_job_id(options_.job_id);
  request.set_dir(restore_->dir());
  request.set_name(restore_->name());
  rounds_.Ask(
      "loading the checkpoint", {running_.Now(), kLoadTimeout}, request,
      &ServerCaller::LoadCheckpoint,
      [this](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        restore_->set_loaded(true);
        gate_.Changed();
        replan_ = true;
        spdlog::info("all partitions are as in the checkpoint {} of step {}", restore_->name(),
                     restore_->step());
        // A table that was not everywhere at the cut, or is new, is created now; where it is,
        // nothing happens.
        for (const TableCatalogue::Entry* entry : tables_.All())
          CreateTableOnServers(entry->spec.id(), actions);
        ReleaseOnServers(logical_workers_.FreeRanks(), actions);
        for (const Node* worker : membership_.Present(WORKER_ROLE))
          AnswerAssignment(worker->name, actions);
        StartIfAllAreThere();
      },
      actions);
}

}  // namespace pawl
