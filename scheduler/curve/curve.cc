#include "scheduler/curve/curve.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/daemon/staleness_counts.h"
#include "client_lib/evaluation/evaluation_scores.h"

namespace pawl {
namespace {

CurvePoint PointOf(const EvaluationResult& result) {
  CurvePoint point;
  point.kind = CurvePoint::Kind::kEvaluation;
  point.step = result.step();
  point.samples = result.trained_samples();
  point.train_s = result.train_s();
  point.unix_s = static_cast<double>(result.unix_ms()) / 1000;
  for (const EvaluationScore& score : ScoresOf(result))
    point.values.emplace_back(absl::StrCat("eval/", score.name), score.value);
  if (result.has_auc_error_max())
    point.values.emplace_back("eval/auc_error_max", result.auc_error_max());
  return point;
}

// Adds what the counts have more than `before`, and sets `before` to them.
void AddStaleness(absl::string_view tag, const StalenessHistogram& counts,
                  StalenessHistogram& before, CurvePoint& point) {
  const std::optional<StalenessSummary> summary = SummarizeStaleness(counts, before);
  before = counts;
  if (!summary.has_value()) return;
  point.values.emplace_back(absl::StrCat(tag, "_mean"), summary->mean);
  point.values.emplace_back(absl::StrCat(tag, "_p99"), summary->p99);
}

}  // namespace

Curve::Curve(const GetStatusResponse& now, bool continues,
             std::optional<uint64_t> last_evaluation_step)
    : has_rate_(!continues),
      steps_(now.steps()),
      samples_(now.samples()),
      train_s_(now.train_s()),
      clock_staleness_(now.counters().clock_staleness()),
      update_staleness_(now.counters().update_staleness()) {
  for (const EvaluationResult& result : now.evaluations()) {
    // Those of the checkpoint that the job was restored from are another job's.
    if (!last_evaluation_step.has_value() || result.step() <= *last_evaluation_step ||
        result.step() <= now.checkpoint().restored_step())
      NoteEvaluation(result);
  }
  std::vector<CurvePoint> earlier;
  AddMetrics(now, earlier);
}

void Curve::NoteEvaluation(const EvaluationResult& result) {
  evaluation_ = result.evaluation();
  evaluation_step_ = result.step();
}

void Curve::AddMetrics(const GetStatusResponse& status, std::vector<CurvePoint>& points) {
  std::map<uint64_t, CurvePoint> by_step;
  for (const UserMetric& metric : status.metrics()) {
    const std::pair<uint64_t, double> figure(metric.step(), metric.value());
    const auto [known, is_new] = metrics_.try_emplace(metric.name(), figure);
    if (!is_new && known->second == figure) continue;
    known->second = figure;
    CurvePoint& point = by_step[metric.step()];
    point.values.emplace_back(absl::StrCat("metrics/", metric.name()), metric.value());
  }
  for (auto& [step, point] : by_step) {
    point.kind = CurvePoint::Kind::kMetrics;
    point.step = step;
    point.samples = status.samples();
    point.train_s = status.train_s();
    points.push_back(std::move(point));
  }
}

std::vector<CurvePoint> Curve::Next(const GetStatusResponse& status) {
  std::vector<CurvePoint> points;
  if (status.steps() > steps_) {
    CurvePoint point;
    point.step = status.steps();
    point.samples = status.samples();
    point.train_s = status.train_s();
    // 0: the workers do not report it.
    if (status.loss() != 0) point.values.emplace_back("train/loss", status.loss());
    if (has_rate_ && status.train_s() > train_s_ && status.samples() >= samples_) {
      point.values.emplace_back(
          "train/samples_per_s",
          static_cast<double>(status.samples() - samples_) / (status.train_s() - train_s_));
    }
    if (status.has_learning_rate())
      point.values.emplace_back("train/learning_rate", status.learning_rate());
    if (status.has_sparse_learning_rate())
      point.values.emplace_back("train/sparse_learning_rate", status.sparse_learning_rate());
    const ServerCounters& counters = status.counters();
    point.values.emplace_back("train/staleness_max", static_cast<double>(counters.staleness_max()));
    AddStaleness("train/clock_staleness", counters.clock_staleness(), clock_staleness_, point);
    AddStaleness("train/update_staleness", counters.update_staleness(), update_staleness_, point);
    point.values.emplace_back("tables/rows", static_cast<double>(counters.rows()));
    point.values.emplace_back("tables/parameter_bytes",
                              static_cast<double>(counters.parameter_bytes()));
    points.push_back(std::move(point));
    steps_ = status.steps();
    samples_ = status.samples();
    train_s_ = status.train_s();
    has_rate_ = true;
  }
  // Steps grow and may repeat, and then numbers grow. A job that was restored with other data may
  // continue with lower numbers (Evaluations::Add).
  for (const EvaluationResult& result : status.evaluations()) {
    const bool is_new = result.step() > evaluation_step_ ||
                        (result.step() == evaluation_step_ && result.evaluation() > evaluation_);
    if (!is_new) continue;
    points.push_back(PointOf(result));
    NoteEvaluation(result);
  }
  AddMetrics(status, points);
  return points;
}

}  // namespace pawl
