// Puts an evaluation of the job together from the ranks' parts.
#ifndef PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_
#define PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Distinct scores that the ranks may report for one evaluation, all together: 12 bytes each, and as
// much again while they are merged.
inline constexpr uint64_t kMaxEvaluationScores = 1u << 25;
inline constexpr uint32_t kMaxEvaluationParts = 65536;

// One rank's share.
struct RankEvaluation {
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
};

// All ranks' shares, by rank.
struct EvaluationInput {
  uint64_t evaluation = 0;
  bool final = false;
  std::vector<RankEvaluation> ranks;
};

// The figures that apply to `loss`: AUC, log loss and accuracy to LOGISTIC, log loss and accuracy
// to SOFTMAX_CROSS_ENTROPY, RMSE to SQUARED. Sums are taken in rank order, so the same parts give
// the same bits. The AUC is exact: the share of (positive, negative) pairs in which the positive
// has the higher score, pairs of equal scores counting half; it is unset if either label is absent.
// Pure; O(n log n) in the number of scores.
EvaluationResult ComputeEvaluation(const EvaluationInput& input, Loss loss);

// Collects the parts of one evaluation at a time. Not thread-safe.
class EvaluationCollector {
 public:
  // `ranks`: V of the job.
  EvaluationCollector(uint32_t ranks, Loss loss) : loss_(loss), shares_(ranks) {}

  // Counts a part, once. INVALID_ARGUMENT naming the field, OUT_OF_RANGE for an impossible rank,
  // FAILED_PRECONDITION for an evaluation that is not the one being collected, and for a rank's
  // last part while others are missing (what a former scheduler had collected is gone: all parts
  // are to be sent again), RESOURCE_EXHAUSTED beyond the limit on scores. Nothing has changed then.
  absl::Status Add(const ReportEvaluationRequest& part);

  // Drops what the rank has reported for the evaluation being collected: another process is to
  // report it.
  void Forget(uint32_t rank);

  // Goes on with another evaluation. REQUIRES: nothing was added.
  void BeginWith(uint64_t evaluation) { evaluation_ = evaluation; }

  // The evaluation that is being collected; 1 at first.
  uint64_t evaluation() const { return evaluation_; }
  // Nothing of it is there.
  bool empty() const;
  // All parts of all ranks are there.
  bool complete() const { return complete_ranks_ == shares_.size(); }
  // Hands the parts over and begins with the next evaluation. REQUIRES: complete().
  EvaluationInput Take();

 private:
  struct Share {
    // Of each part; empty until the first one came.
    std::vector<std::vector<RankEvaluation::Score>> parts;
    std::vector<bool> received;
    size_t received_count = 0;
    uint64_t positives_and_negatives = 0;
    // Distinct scores in all parts.
    uint64_t scores = 0;
    RankEvaluation sums;
  };

  const Loss loss_;
  uint64_t evaluation_ = 1;
  bool final_ = false;
  uint64_t scores_ = 0;
  size_t complete_ranks_ = 0;
  std::vector<Share> shares_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_EVALUATION_EVALUATION_COLLECTOR_H_
