#include "scheduler/evaluation/early_stopping_policy.h"

#include <cmath>

namespace pawl {
namespace {

// The metric, negated if lower is better.
std::optional<double> Goodness(const EvaluationResult& result, Metric metric) {
  switch (metric) {
    case AUC:
      return result.has_auc() ? std::optional<double>(result.auc()) : std::nullopt;
    case ACCURACY:
      return result.has_accuracy() ? std::optional<double>(result.accuracy()) : std::nullopt;
    case LOGLOSS:
      return result.has_logloss() ? std::optional<double>(-result.logloss()) : std::nullopt;
    case RMSE:
      return result.has_rmse() ? std::optional<double>(-result.rmse()) : std::nullopt;
    default:
      return std::nullopt;
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
