#include "client_lib/evaluation/evaluation_scores.h"

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

// METRIC_UNSPECIFIED: no metric of early stopping.
struct Named {
  Metric metric;
  const char* name;
  bool has;
  double value;
};

std::vector<Named> AllOf(const EvaluationResult& result) {
  return {
      {AUC, "auc", result.has_auc(), result.auc()},
      {LOGLOSS, "logloss", result.has_logloss(), result.logloss()},
      {ACCURACY, "accuracy", result.has_accuracy(), result.accuracy()},
      {RMSE, "rmse", result.has_rmse(), result.rmse()},
      {GAUC, "gauc", result.has_gauc(), result.gauc()},
      {NORMALIZED_ENTROPY, "normalized_entropy", result.has_normalized_entropy(),
       result.normalized_entropy()},
      {METRIC_UNSPECIFIED, "calibration", result.has_calibration(), result.calibration()},
      {MAE, "mae", result.has_mae(), result.mae()},
      {NDCG, "ndcg", result.has_ndcg(), result.ndcg()},
  };
}

}  // namespace

std::vector<EvaluationScore> ScoresOf(const EvaluationResult& result) {
  std::vector<EvaluationScore> scores;
  for (const Named& score : AllOf(result)) {
    if (score.has) scores.push_back({score.name, score.value});
  }
  for (const EvaluationResult& other : result.other_labels()) {
    for (const EvaluationScore& score : ScoresOf(other))
      scores.push_back({absl::StrCat(other.label(), "/", score.name), score.value});
  }
  return scores;
}

std::optional<EvaluationScore> ScoreOf(const EvaluationResult& result, Metric metric) {
  if (metric == METRIC_UNSPECIFIED) return std::nullopt;
  for (const Named& score : AllOf(result)) {
    if (score.has && score.metric == metric) return EvaluationScore{score.name, score.value};
  }
  return std::nullopt;
}

}  // namespace pawl
