#include "scheduler/status/evaluation_json.h"

#include <cmath>

#include "client_lib/evaluation/evaluation_scores.h"

namespace pawl {

using Json = nlohmann::ordered_json;

Json JsonNumber(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json EvaluationJson(const EvaluationResult& result) {
  Json json = {
      {"evaluation", result.evaluation()}, {"step", result.step()}, {"samples", result.samples()}};
  for (const EvaluationScore& score : ScoresOf(result)) json[score.name] = JsonNumber(score.value);
  if (result.has_auc_error_max()) json["auc_error_max"] = JsonNumber(result.auc_error_max());
  if (result.has_gauc()) {
    json["groups"] = result.groups();
    json["group_samples"] = result.group_samples();
  }
  if (result.has_ndcg()) json["ndcg_groups"] = result.ndcg_groups();
  for (const EvaluationResult& other : result.other_labels()) {
    if (other.has_auc_error_max())
      json[other.label() + "/auc_error_max"] = JsonNumber(other.auc_error_max());
  }
  if (result.unix_ms() > 0) {
    json["time"] = static_cast<double>(result.unix_ms()) / 1000;
    json["train_s"] = JsonNumber(result.train_s());
    json["trained_samples"] = result.trained_samples();
  }
  for (const CalibrationBin& bin : result.calibration_bins()) {
    json["calibration_bins"].push_back({{"samples", bin.samples()},
                                        {"mean_prediction", JsonNumber(bin.mean_prediction())},
                                        {"mean_label", JsonNumber(bin.mean_label())}});
  }
  return json;
}

Json UserMetricsJson(const GetStatusResponse& status) {
  Json json = Json::object();
  for (const UserMetric& metric : status.metrics())
    json[metric.name()] = {{"step", metric.step()}, {"value", JsonNumber(metric.value())}};
  return json;
}

}  // namespace pawl
