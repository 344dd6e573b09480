// When training has stopped getting better.
#ifndef PAWL_SCHEDULER_EVALUATION_EARLY_STOPPING_POLICY_H_
#define PAWL_SCHEDULER_EVALUATION_EARLY_STOPPING_POLICY_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Sees the evaluations in order and says what to do after each. AUC and ACCURACY are better when
// higher, LOGLOSS and RMSE when lower. An evaluation without the metric, or with NaN, is no
// improvement, and any other one is better than it: the best of a restored job may have been so by
// another metric. Not thread-safe.
class EarlyStoppingPolicy {
 public:
  // REQUIRES: metric set, patience > 0 (FillDefaults sees to both).
  explicit EarlyStoppingPolicy(const EarlyStopping& settings) : settings_(settings) {}

  struct Decision {
    // Better by more than min_delta than the best so far: keep these parameters.
    bool improved = false;
    // `patience` evaluations in a row brought no improvement: do no further step.
    bool stop = false;
  };
  Decision Observe(const EvaluationResult& result);

  // The best evaluation so far.
  const std::optional<EvaluationResult>& best() const { return best_; }
  // Evaluations since.
  uint32_t without_improvement() const { return without_improvement_; }

  // Goes on where another one has stopped.
  void Restore(std::optional<EvaluationResult> best, uint32_t without_improvement) {
    best_ = std::move(best);
    without_improvement_ = without_improvement;
  }

 private:
  const EarlyStopping settings_;
  std::optional<EvaluationResult> best_;
  uint32_t without_improvement_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EARLY_STOPPING_POLICY_H_
