#include "scheduler/evaluation/evaluation_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/numeric/int128.h"
#include "client_lib/evaluation/auc.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

using Score = EvaluationShare::Score;

// The labels of the samples with one score.
struct ScoreCounts {
  float score;
  uint64_t positives;
  uint64_t negatives;

  uint64_t samples() const { return positives + negatives; }
};

// The scores of all ranks, strictly ascending.
std::vector<ScoreCounts> Merge(const EvaluationInput& input) {
  std::vector<Score> all;
  size_t count = 0;
  for (const EvaluationShare& rank : input.ranks) count += rank.scores.size();
  all.reserve(count);
  for (const EvaluationShare& rank : input.ranks)
    all.insert(all.end(), rank.scores.begin(), rank.scores.end());
  std::sort(all.begin(), all.end(),
            [](const Score& a, const Score& b) { return a.score < b.score; });
  std::vector<ScoreCounts> merged;
  for (const Score& score : all) {
    if (merged.empty() || merged.back().score != score.score) merged.push_back({score.score, 0, 0});
    merged.back().positives += score.positives;
    merged.back().negatives += score.negatives;
  }
  return merged;
}

double Probability(float logit) {
  const double e = DeterministicExp(-std::abs(static_cast<double>(logit)));
  return (logit < 0 ? e : 1.0) / (1.0 + e);
}

// REQUIRES: 0 < share < 1.
double Entropy(double share) {
  return -share * DeterministicLog(share) - (1.0 - share) * DeterministicLog(1.0 - share);
}

// A sum of predictions and labels.
struct Calibration {
  uint64_t samples = 0;
  uint64_t positives = 0;
  double predictions = 0;

  void Add(const ScoreCounts& score) {
    samples += score.samples();
    positives += score.positives;
    predictions += static_cast<double>(score.samples()) * Probability(score.score);
  }
};

void AddBin(const Calibration& sums, EvaluationResult& result) {
  if (sums.samples == 0) return;
  CalibrationBin& bin = *result.add_calibration_bins();
  bin.set_samples(sums.samples);
  bin.set_mean_prediction(sums.predictions / static_cast<double>(sums.samples));
  bin.set_mean_label(static_cast<double>(sums.positives) / static_cast<double>(sums.samples));
}

// `samples`: of all scores.
void SetCalibration(const std::vector<ScoreCounts>& scores, uint64_t samples,
                    EvaluationResult& result) {
  Calibration all;
  Calibration bin;
  uint64_t bin_number = 0;
  for (const ScoreCounts& score : scores) {
    const auto number =
        static_cast<uint64_t>(absl::uint128(all.samples) * kCalibrationBins / samples);
    if (number != bin_number) {
      AddBin(bin, result);
      bin = Calibration();
      bin_number = number;
    }
    bin.Add(score);
    all.Add(score);
  }
  AddBin(bin, result);
  if (all.positives > 0)
    result.set_calibration(all.predictions / static_cast<double>(all.positives));
}

void SetMetricsOfScores(const EvaluationInput& input, uint64_t samples, EvaluationResult& result) {
  const std::vector<ScoreCounts> scores = Merge(input);
  SetCalibration(scores, samples, result);
  AucCounter counter;
  for (const ScoreCounts& score : scores) counter.Add(score.positives, score.negatives);
  if (!counter.has_both_labels()) return;
  result.set_auc(counter.Auc());
  if (input.rounded_scores) result.set_auc_error_max(counter.MaxError());
  const double positive_share =
      static_cast<double>(counter.positives()) / static_cast<double>(samples);
  result.set_normalized_entropy(result.logloss() / Entropy(positive_share));
}

void SetGauc(const EvaluationInput& input, EvaluationResult& result) {
  uint64_t groups = 0;
  uint64_t samples = 0;
  absl::uint128 auc_sum = 0;
  for (const EvaluationShare& rank : input.ranks) {
    groups += rank.groups;
    samples += rank.group_samples;
    auc_sum += rank.group_auc_sum;
  }
  if (groups == 0) return;
  result.set_groups(groups);
  result.set_group_samples(samples);
  result.set_gauc(std::ldexp(static_cast<double>(auc_sum) / static_cast<double>(samples), -32));
}

void SetNdcg(const EvaluationInput& input, EvaluationResult& result) {
  uint64_t groups = 0;
  absl::uint128 sum = 0;
  for (const EvaluationShare& rank : input.ranks) {
    groups += rank.ndcg_groups;
    sum += rank.ndcg_sum;
  }
  if (groups == 0) return;
  result.set_ndcg_groups(groups);
  result.set_ndcg(std::ldexp(static_cast<double>(sum) / static_cast<double>(groups), -32));
}

EvaluationResult ComputeLabel(const EvaluationInput& input, Loss loss) {
  EvaluationResult result;
  result.set_evaluation(input.evaluation);
  result.set_label(input.label);
  uint64_t samples = 0;
  uint64_t correct = 0;
  double logloss_sum = 0;
  double squared_error_sum = 0;
  double absolute_error_sum = 0;
  uint64_t step = 0;
  for (size_t rank = 0; rank < input.ranks.size(); ++rank) {
    const EvaluationShare& share = input.ranks[rank];
    samples += share.samples;
    correct += share.correct;
    logloss_sum += share.logloss_sum;
    squared_error_sum += share.squared_error_sum;
    absolute_error_sum += share.absolute_error_sum;
    step = rank == 0 ? share.step : std::min(step, share.step);
  }
  result.set_step(step);
  result.set_samples(samples);
  if (samples == 0) return result;
  const double count = static_cast<double>(samples);
  if (loss == SQUARED) {
    result.set_rmse(std::sqrt(squared_error_sum / count));
    result.set_mae(absolute_error_sum / count);
    SetNdcg(input, result);
    return result;
  }
  result.set_logloss(logloss_sum / count);
  result.set_accuracy(static_cast<double>(correct) / count);
  if (loss != LOGISTIC) return result;
  SetMetricsOfScores(input, samples, result);
  SetGauc(input, result);
  SetNdcg(input, result);
  return result;
}

}  // namespace

EvaluationResult ComputeEvaluation(const EvaluationInput& input, Loss loss) {
  EvaluationResult result = ComputeLabel(input, loss);
  for (const EvaluationInput& other : input.other_labels) {
    EvaluationResult& judged = *result.add_other_labels() = ComputeLabel(other, loss);
    judged.clear_evaluation();
    judged.clear_step();
    judged.clear_calibration_bins();
  }
  return result;
}

}  // namespace pawl
