// The job's evaluations: the published ones, the one in progress, and their effect on training.
#ifndef PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_
#define PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/job/group_field.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/evaluation/early_stopping_policy.h"
#include "scheduler/evaluation/evaluation_collector.h"

namespace pawl {

// The limit on published evaluations, each counted once for every label; the oldest are dropped.
inline constexpr size_t kMaxEvaluationsKept = 4096;

// The evaluations of a job, one at a time: the parts are collected (Add), computed by the caller
// (Take), judged (Judge) and published (Publish). Not thread-safe.
class Evaluations {
 public:
  // `job` has its defaults filled in. Programs of users report logistic loss.
  explicit Evaluations(const Job& job)
      : early_stopping_(job.evaluation().has_early_stopping()),
        loss_(job.has_model() ? job.model().loss() : LOGISTIC),
        collector_(job.logical_workers(), loss_),
        policy_(job.evaluation().early_stopping()),
        label_names_(LabelNames(job.data())) {}

  // A published evaluation; nullptr if there is none, or it was dropped. `step`: where it was made.
  // The number alone is ambiguous: a job that continues from the end of another one may use that
  // job's last number again.
  const EvaluationResult* Find(uint64_t evaluation, uint64_t step) const;

  // After a rebuild: the former scheduler published this evaluation, since another rank has
  // reported a later one, and its result is lost.
  bool IsLost(uint64_t evaluation) const;
  // After a rebuild: drops the present evaluation, which is lost, if this one is later. Returns
  // whether it did.
  bool SkipTo(uint64_t evaluation);
  // After a rebuild: whether the present evaluation may be lost.
  bool MayBeLost() const { return results_are_lost_ && computing_ == 0 && !collector_.empty(); }
  // After a rebuild: a rank has ended `steps` steps. Drops the present evaluation if the rank has
  // its result, which is lost. Returns whether it did.
  bool SkipBefore(uint64_t steps);

  // Like EvaluationCollector::Add, but until this object has published an evaluation, the first
  // arrival or part decides its number. While an evaluation is being computed: OK for its arrivals
  // and parts, FAILED_PRECONDITION for others.
  absl::Status Add(const ReportEvaluationRequest& part);
  // Whether all ranks that have not finished have arrived at the present evaluation.
  bool AllHaveArrived() const { return computing_ != 0 || collector_.all_arrived(); }
  // The rank has lost its host; the next one reports again.
  void Forget(uint32_t rank) { collector_.Forget(rank); }
  // The rank takes no more steps: evaluations do not wait for it.
  void Finish(uint32_t rank) { collector_.Finish(rank); }
  // The parts, once all are collected. The evaluation is being computed until Publish.
  std::optional<EvaluationInput> Take();

  // What Publish(result) will decide.
  EarlyStoppingPolicy::Decision Judge(const EvaluationResult& result) const;
  // Applies early stopping. REQUIRES: the servers keep the parameters of the result if Judge says
  // that it is an improvement.
  void Publish(const EvaluationResult& result);

  Loss loss() const { return loss_; }
  const std::deque<EvaluationResult>& results() const { return results_; }
  bool stop_training() const { return stop_training_; }
  bool best_is_kept() const { return best_is_kept_; }
  // The evaluation of the job's final parameters: the best if it was kept, else the last.
  std::optional<EvaluationResult> FinalResult() const;

  StoredEvaluations Save() const;
  // For the checkpoint of the job's end after `step` steps. Leaves out the evaluation at `step`,
  // which a restored job repeats, and its effect on early stopping; unless it is the best. Then its
  // parameters are the kept ones, and a restored job with more steps does not evaluate there.
  StoredEvaluations SaveEnd(uint64_t step) const;
  // Ignores the state of early stopping if the job has none. A rebuilt state has no `next`.
  // REQUIRES: nothing was added.
  void Restore(const StoredEvaluations& stored);

 private:
  const bool early_stopping_;
  const Loss loss_;
  EvaluationCollector collector_;
  // As of the last Publish: an unpublished evaluation is repeated after a restart.
  EarlyStoppingPolicy policy_;
  // In the order of the data's columns.
  const std::vector<std::string> label_names_;
  // The evaluation between Take and Publish; 0: none.
  uint64_t computing_ = 0;
  std::deque<EvaluationResult> results_;
  bool stop_training_ = false;
  // stop_training_ before the last Publish. Is not saved: a job that repeats the last evaluation
  // decides again.
  bool stopped_before_last_ = false;
  bool best_is_kept_ = false;
  // Whether Publish was called since Restore. Before that, the last of results_ may be of another
  // job's end.
  bool has_published_ = false;
  // The state was rebuilt: evaluations may have been published that results_ lacks. Is saved until
  // the first Publish, as no `next`.
  bool results_are_lost_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_
