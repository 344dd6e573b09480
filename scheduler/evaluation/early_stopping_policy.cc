#include "scheduler/evaluation/early_stopping_policy.h"

#include <cmath>

#include "client_lib/evaluation/evaluation_scores.h"

namespace pawl {
namespace {

// The metric, negated if lower is better.
std::optional<double> Goodness(const EvaluationResult& result, Metric metric) {
  const std::optional<EvaluationScore> score = ScoreOf(result, metric);
  if (!score.has_value()) return std::nullopt;
  switch (metric) {
    case AUC:
    case GAUC:
    case NDCG:
    case ACCURACY:
      return score->value;
    default:
      return -score->value;
  }
}

}  // namespace

EarlyStoppingPolicy::Decision EarlyStoppingPolicy::Observe(const EvaluationResult& result) {
  Decision decision;
  const std::optional<double> goodness = Goodness(result, settings_.metric());
  if (goodness.has_value() && !std::isnan(*goodness)) {
    const std::optional<double> before =
        best_.has_value() ? Goodness(*best_, settings_.metric()) : std::nullopt;
    decision.improved =
        !before.has_value() || std::isnan(*before) || *goodness > *before + settings_.min_delta();
  }
  if (decision.improved) {
    best_ = result;
    without_improvement_ = 0;
  } else {
    ++without_improvement_;
  }
  decision.stop = without_improvement_ >= settings_.patience();
  return decision;
}

}  // namespace pawl
