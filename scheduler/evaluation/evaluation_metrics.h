// Computes the metrics of an evaluation from the ranks' shares.
#ifndef PAWL_SCHEDULER_EVALUATION_EVALUATION_METRICS_H_
#define PAWL_SCHEDULER_EVALUATION_EVALUATION_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// As many as a person compares at a glance.
inline constexpr uint64_t kCalibrationBins = 10;

// One rank's share.
struct EvaluationShare {
  struct Score {
    float score;
    uint32_t positives;
    uint32_t negatives;
  };
  // Strictly ascending.
  std::vector<Score> scores;
  uint64_t step = 0;
  uint64_t samples = 0;
  double logloss_sum = 0;
  uint64_t correct = 0;
  double squared_error_sum = 0;
  double absolute_error_sum = 0;
  // The groups with both labels, their samples, and the sum of AucCounter::WeightedAuc().
  uint64_t groups = 0;
  uint64_t group_samples = 0;
  uint64_t group_auc_sum = 0;
  // The groups with a relevance above 0, and the sum of their NDCGs in units of 2^-32.
  uint64_t ndcg_groups = 0;
  uint64_t ndcg_sum = 0;
};

// The shares of the ranks that take part, by rank, for one label.
struct EvaluationInput {
  uint64_t evaluation = 0;
  // Whether the ranks rounded their scores.
  bool rounded_scores = false;
  std::vector<EvaluationShare> ranks;
  // With several labels: the label's name, and in the first label's input those of the others.
  std::string label;
  std::vector<EvaluationInput> other_labels;
};

// The figures that apply to `loss`: those of probabilities and accuracy to LOGISTIC, log loss and
// accuracy to SOFTMAX_CROSS_ENTROPY, RMSE and MAE to SQUARED, NDCG to LOGISTIC and SQUARED.
// EvaluationResult defines each.
//
// The result of the first label has the others' in other_labels, without their bins.
//
// Sums over samples are taken in rank order, so the same parts give the same bits. AUC, GAUC,
// NDCG, calibration and its bins come from integers: they do not even depend on the number of
// ranks. AUC, GAUC and normalized entropy are unset if either label is absent, calibration and NDCG
// without positive labels. Pure; O(n log n) in the number of scores.
EvaluationResult ComputeEvaluation(const EvaluationInput& input, Loss loss);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EVALUATION_METRICS_H_
