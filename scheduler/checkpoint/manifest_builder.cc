#include "scheduler/checkpoint/manifest_builder.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace pawl {
namespace {

// Returns the evaluations that the checkpoint stores. Those before its step are complete, because
// no rank had reached the step when the checkpoint was requested, or all had ended there. The
// evaluation at the step is left out, because the restored job repeats it.
StoredEvaluations EvaluationsAt(const Checkpoints::Order& order, const StoredEvaluations& before,
                                const CheckpointContext& context) {
  if (order.is_final) return before;
  Evaluations evaluations(context.job);
  evaluations.Restore(before);
  uint64_t next = std::max<uint64_t>(before.next(), 1);
  // Evaluation numbers are not unique; see Evaluations::Find.
  const uint64_t known_to = before.results().empty() ? 0 : before.results().rbegin()->step();
  for (const EvaluationResult& result : context.evaluations.results()) {
    if (result.step() <= known_to || result.step() >= order.step) continue;
    next = result.evaluation() + 1;
    evaluations.Publish(result);
  }
  StoredEvaluations stored = evaluations.Save();
  stored.set_next(next);
  return stored;
}

}  // namespace

StoredEvaluations EvaluationsBefore(const Checkpoints::Order& order,
                                    const Evaluations& evaluations) {
  return order.is_final ? evaluations.SaveEnd(order.step) : evaluations.Save();
}

absl::StatusOr<CheckpointManifest> BuildManifest(const Checkpoints::Order& order,
                                                 std::vector<CheckpointPart> parts,
                                                 const StoredEvaluations& evaluations_before,
                                                 const CheckpointContext& context) {
  std::sort(parts.begin(), parts.end(), [](const CheckpointPart& a, const CheckpointPart& b) {
    return a.partition() < b.partition();
  });
  bool complete = parts.size() == context.job.partitions();
  for (size_t i = 0; complete && i < parts.size(); ++i) complete = parts[i].partition() == i;
  if (!complete) return absl::AbortedError("partitions moved while their parts were written");

  CheckpointManifest manifest;
  manifest.set_job_id(context.job_id);
  manifest.set_job_name(context.job.name());
  manifest.set_step(order.step);
  manifest.set_is_final(order.is_final);
  manifest.set_job(context.job.SerializeAsString());
  for (const StoredTable& table : context.tables.tables()) *manifest.add_tables() = table.spec();
  for (CheckpointPart& part : parts) *manifest.add_parts() = std::move(part);
  SchedulerState state;
  state.mutable_membership()->set_last_incarnation(context.last_incarnation);
  *state.mutable_tables() = context.tables;
  *state.mutable_evaluations() = EvaluationsAt(order, evaluations_before, context);
  manifest.set_scheduler_state(state.SerializeAsString());
  return manifest;
}

}  // namespace pawl
