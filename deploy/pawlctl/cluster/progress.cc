#include "deploy/pawlctl/cluster/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client_lib/evaluation/evaluation_scores.h"

namespace pawl {
namespace {

// The score that early stopping compares, or the first that the evaluation has.
std::optional<EvaluationScore> MainScore(const Job& job, const EvaluationResult& result) {
  for (const Metric metric :
       {job.evaluation().early_stopping().metric(), AUC, ACCURACY, RMSE, LOGLOSS}) {
    const std::optional<EvaluationScore> score = ScoreOf(result, metric);
    if (score.has_value()) return score;
  }
  return std::nullopt;
}

}  // namespace

Progress ProgressMeter::Update(const GetStatusResponse& status, MonotonicTime now) {
  Progress progress;
  progress.state = status.state();
  for (const NodeStatus& node : status.nodes()) {
    if (node.gone()) continue;
    if (node.role() == SERVER_ROLE) ++progress.servers;
    if (node.role() == WORKER_ROLE) ++progress.workers;
  }
  progress.step = status.steps();
  progress.steps_total = status.steps_total();
  progress.epochs = status.job().epochs();
  // With max_steps or other batch sizes the total does not tell the length of an epoch.
  if (status.steps_total() > 0 && status.job().epochs() > 0 && status.job().max_steps() == 0 &&
      status.job().batch_size_changes().empty()) {
    const uint64_t steps_per_epoch =
        std::max<uint64_t>(1, status.steps_total() / status.job().epochs());
    progress.epoch = static_cast<uint32_t>(
        std::min<uint64_t>(status.job().epochs(), status.steps() / steps_per_epoch + 1));
  }
  if (status.samples() > 0) progress.loss = status.loss();
  if (!status.evaluations().empty()) {
    const std::optional<EvaluationScore> score =
        MainScore(status.job(), *status.evaluations().rbegin());
    if (score.has_value()) {
      progress.metric = score->name;
      progress.metric_value = score->value;
    }
  }
  progress.staleness_max = status.counters().staleness_max();

  observations_.push_back({now, status.steps(), status.samples()});
  while (observations_.size() > 2 && now - observations_[1].time >= kSpeedWindow)
    observations_.pop_front();
  const Observation& first = observations_.front();
  const double seconds = Seconds(now - first.time);
  // The counters of a job whose scheduler was restarted start again.
  if (status.samples() < first.samples || status.steps() < first.steps) {
    observations_ = {observations_.back()};
  } else if (seconds > 0 && status.samples() > first.samples) {
    progress.samples_per_s = static_cast<double>(status.samples() - first.samples) / seconds;
    const double steps_per_s = static_cast<double>(status.steps() - first.steps) / seconds;
    if (steps_per_s > 0 && status.steps_total() >= status.steps()) {
      progress.seconds_left =
          static_cast<double>(status.steps_total() - status.steps()) / steps_per_s;
    }
  }
  return progress;
}

std::string FormatProgress(const Progress& progress, size_t width) {
  // The text of each part and its priority. The part with the highest number is dropped first.
  std::vector<std::pair<std::string, int>> parts;
  switch (progress.state) {
    case STARTING:
      parts.emplace_back(
          absl::StrCat("starting: ", progress.servers,
                       progress.servers == 1 ? " server, " : " servers, ", progress.workers,
                       progress.workers == 1 ? " worker" : " workers"),
          0);
      break;
    case FINISHING:
      parts.emplace_back("gathering the result", 0);
      break;
    default:
      break;
  }
  if (progress.state == RUNNING || progress.state == FINISHING) {
    if (progress.epoch.has_value())
      parts.emplace_back(absl::StrCat("epoch ", *progress.epoch, "/", progress.epochs), 2);
    if (progress.steps_total > 0) {
      parts.emplace_back(absl::StrCat("step ", progress.step, "/", progress.steps_total), 1);
      parts.emplace_back(
          absl::StrCat(std::min<uint64_t>(100, 100 * progress.step / progress.steps_total), "%"),
          6);
    } else {
      parts.emplace_back(absl::StrCat("step ", progress.step), 1);
    }
    if (progress.samples_per_s.has_value()) {
      parts.emplace_back(
          absl::StrCat(FormatCount(static_cast<uint64_t>(std::llround(*progress.samples_per_s))),
                       " samples/s"),
          5);
    }
    if (progress.loss.has_value())
      parts.emplace_back(absl::StrCat("loss ", FormatValue(*progress.loss)), 3);
    if (progress.metric_value.has_value()) {
      parts.emplace_back(absl::StrCat(progress.metric, " ", FormatValue(*progress.metric_value)),
                         3);
    }
    parts.emplace_back(absl::StrCat("staleness ", progress.staleness_max), 7);
    if (progress.seconds_left.has_value() && progress.state == RUNNING) {
      parts.emplace_back(absl::StrCat(FormatSeconds(*progress.seconds_left), " left"), 4);
    }
  }
  const auto line = [&parts] {
    return absl::StrJoin(parts, "  ",
                         [](std::string* out, const auto& part) { out->append(part.first); });
  };
  while (parts.size() > 1 && line().size() > width) {
    parts.erase(std::max_element(parts.begin(), parts.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  return line().substr(0, width);
}

std::string FormatCount(uint64_t count) {
  std::string text = absl::StrCat(count);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string FormatSeconds(double seconds) {
  const auto whole = static_cast<uint64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (whole < 60) return absl::StrCat(whole, "s");
  if (whole < 3600) return absl::StrCat(whole / 60, "m ", whole % 60, "s");
  return absl::StrCat(whole / 3600, "h ", whole / 60 % 60, "m");
}

std::string FormatValue(double value) {
  if (value != 0 && std::abs(value) < 0.01) return absl::StrFormat("%.4g", value);
  return absl::StrFormat("%.4f", value);
}

}  // namespace pawl
