// The scores of an evaluation by their names.
#ifndef PAWL_CLIENT_LIB_EVALUATION_EVALUATION_SCORES_H_
#define PAWL_CLIENT_LIB_EVALUATION_EVALUATION_SCORES_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

struct EvaluationScore {
  // "auc", "normalized_entropy": as everywhere in JSON, metrics and texts. Those of the second
  // label and the further ones begin with the label's name: "buy/auc".
  std::string name;
  double value;
};

// The scores that the result has: of auc, logloss, accuracy, rmse, gauc, normalized_entropy,
// calibration, mae and ndcg, in this order; then those of other_labels.
std::vector<EvaluationScore> ScoresOf(const EvaluationResult& result);

// The score of the first label that early stopping by `metric` compares, if the result has it.
std::optional<EvaluationScore> ScoreOf(const EvaluationResult& result, Metric metric);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_EVALUATION_EVALUATION_SCORES_H_
