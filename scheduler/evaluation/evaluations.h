// The job's evaluations: those that are done, the one under way, and what they mean for the
// training.
#ifndef PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_
#define PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/evaluation/early_stopping_policy.h"
#include "scheduler/evaluation/evaluation_collector.h"

namespace pawl {

// Evaluations that are still shown; the oldest are forgotten.
inline constexpr size_t kMaxEvaluationsKept = 4096;

// One evaluation after the other: its parts are collected (Add), computed elsewhere (Take), judged
// (Observe) and published. Not thread-safe.
class Evaluations {
 public:
  // `job` has its defaults filled in.
  explicit Evaluations(const Job& job)
      : early_stopping_(job.evaluation().has_early_stopping()),
        collector_(job.logical_workers(), job.model().loss()),
        policy_(job.evaluation().early_stopping()) {}

  // A published one; nullptr if it is not, or is forgotten. `step`: where it was made. The number
  // alone does not say which: that of a job's end between two pauses is used again by the job that
  // goes on from there.
  const EvaluationResult* Find(uint64_t evaluation, uint64_t step) const;

  // Like EvaluationCollector::Add; OK for a part of the evaluation that is being computed,
  // FAILED_PRECONDITION for any other meanwhile.
  absl::Status Add(const ReportEvaluationRequest& part);
  // The rank has lost its host; its next one reports anew.
  void Forget(uint32_t rank) { collector_.Forget(rank); }
  // The parts, once all are there: the evaluation is being computed until Publish.
  std::optional<EvaluationInput> Take();

  // What early stopping says to the result. To be called once for each, before Publish.
  EarlyStoppingPolicy::Decision Observe(const EvaluationResult& result);
  // The servers have kept the parameters of the best one.
  void BestIsKept() { best_is_kept_ = true; }
  void Publish(const EvaluationResult& result);

  const std::deque<EvaluationResult>& results() const { return results_; }
  bool stop_training() const { return stop_training_; }
  bool best_is_kept() const { return best_is_kept_; }
  // The one that the job's final parameters have: the best if it was kept, else the last.
  std::optional<EvaluationResult> FinalResult() const;

  StoredEvaluations Save() const;
  // Of early stopping nothing, if the job has none. REQUIRES: nothing was added.
  void Restore(const StoredEvaluations& stored);

 private:
  const bool early_stopping_;
  EvaluationCollector collector_;
  EarlyStoppingPolicy policy_;
  // The policy as of the last Publish, which is what is saved: an evaluation that is not published
  // is done again.
  std::optional<EvaluationResult> published_best_;
  uint32_t published_without_improvement_ = 0;
  bool published_best_is_kept_ = false;
  // The evaluation whose parts are all there and whose result is not out yet; 0: none.
  uint64_t in_work_ = 0;
  std::deque<EvaluationResult> results_;
  bool stop_ = false;
  bool stop_training_ = false;
  bool best_is_kept_ = false;
  // Not since Restore: until then the last of results_ may be of another job's end.
  bool has_published_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EVALUATIONS_H_
