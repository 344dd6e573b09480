// Decides when training no longer improves the model.
#ifndef PAWL_SCHEDULER_EVALUATION_EARLY_STOPPING_POLICY_H_
#define PAWL_SCHEDULER_EVALUATION_EARLY_STOPPING_POLICY_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Observes the evaluations in order and decides after each. Higher AUC, GAUC, NDCG and ACCURACY
// are better, lower LOGLOSS, NORMALIZED_ENTROPY, RMSE and MAE. An evaluation whose metric is
// missing or NaN is no improvement, and any other is better than it: the best evaluation of a
// restored job may be by another metric. Not thread-safe.
class EarlyStoppingPolicy {
 public:
  // REQUIRES: metric set, patience > 0 (FillDefaults ensures both).
  explicit EarlyStoppingPolicy(const EarlyStopping& settings) : settings_(settings) {}

  struct Decision {
    // Better by more than min_delta than the best so far: keep these parameters.
    bool improved = false;
    // `patience` evaluations in a row brought no improvement: end the training.
    bool stop = false;
  };
  Decision Observe(const EvaluationResult& result);

  // The best evaluation so far.
  const std::optional<EvaluationResult>& best() const { return best_; }
  // The number of evaluations since the best.
  uint32_t without_improvement() const { return without_improvement_; }

  // Continues from a saved state.
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
