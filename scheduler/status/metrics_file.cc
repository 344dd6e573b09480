#include "scheduler/status/metrics_file.h"

#include <optional>
#include <string>
#include <utility>

#include "client_lib/daemon/staleness_counts.h"
#include "nlohmann/json.hpp"
#include "scheduler/status/digest.h"
#include "scheduler/status/evaluation_json.h"

namespace pawl {

using Json = nlohmann::ordered_json;

namespace {

// The histogram's mean, 99th percentile and counts by their upper bounds, unless it is empty.
void AddStaleness(const char* name, const StalenessHistogram& histogram, Json& json) {
  const std::optional<StalenessSummary> summary = SummarizeStaleness(histogram);
  if (!summary.has_value()) return;
  Json counts;
  for (int i = 0; i < histogram.counts_size(); ++i) {
    if (histogram.counts(i) == 0) continue;
    const auto bound = static_cast<size_t>(i);
    counts[bound < kStalenessBounds.size() ? std::to_string(kStalenessBounds[bound]) : "inf"] =
        histogram.counts(i);
  }
  json[name] = {
      {"mean", summary->mean}, {"p99", JsonNumber(summary->p99)}, {"counts", std::move(counts)}};
}

}  // namespace

std::string MetricsJson(const JobReport& report) {
  const GetStatusResponse& status = report.status;
  Json json;
  json["job"] = status.job().name();
  json["mode"] = ConsistencyMode_Name(status.job().consistency().mode());
  json["state"] = JobState_Name(status.state());
  json["servers"] = report.servers;
  json["workers"] = report.workers;
  json["logical_workers"] = status.job().logical_workers();
  json["steps"] = status.steps();
  json["samples"] = status.samples();
  json["wall_s"] = JsonNumber(status.train_s());
  json["samples_per_s"] = status.train_s() > 0
                              ? JsonNumber(static_cast<double>(status.samples()) / status.train_s())
                              : Json(0.0);
  json["loss"] = JsonNumber(status.loss());
  json["eval"] =
      report.evaluation.has_value() ? EvaluationJson(*report.evaluation) : Json::object();
  json["evaluations"] = Json::array();
  for (const EvaluationResult& result : status.evaluations())
    json["evaluations"].push_back(EvaluationJson(result));
  json["metrics"] = UserMetricsJson(status);
  json["digest"] = status.has_digest() ? Json(DigestText(status.digest())) : Json(nullptr);
  json["pushes_applied"] = status.counters().pushes_applied();
  json["pushes_deduplicated"] = status.counters().pushes_deduplicated();
  json["pushes_late"] = status.counters().pushes_late();
  json["staleness_max"] = status.counters().staleness_max();
  AddStaleness("clock_staleness", status.counters().clock_staleness(), json);
  AddStaleness("update_staleness", status.counters().update_staleness(), json);
  json["rows"] = status.counters().rows();
  json["parameter_bytes"] = status.counters().parameter_bytes();
  const CheckpointStatus& checkpoint = status.checkpoint();
  if (!checkpoint.end_folder().empty()) json["end_checkpoint"] = checkpoint.end_folder();
  if (!checkpoint.end_failure().empty()) json["end_checkpoint_failure"] = checkpoint.end_failure();
  if (!status.failure().empty()) json["failure"] = status.failure();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pawl
