#include "scheduler/evaluation/evaluation_metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "client_lib/evaluation/auc.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

struct Sample {
  float logit;
  bool positive;
};

double Probability(float logit) { return 1.0 / (1.0 + std::exp(-static_cast<double>(logit))); }

// Clicks of a model that predicts too high probabilities. Many logits repeat.
std::vector<Sample> Clicks(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Sample> samples(count);
  for (Sample& sample : samples) {
    sample.logit = static_cast<float>(random() % 600) / 100 - 5;
    const double rate = 0.7 * Probability(sample.logit);
    sample.positive = static_cast<double>(random()) / 4294967296.0 < rate;
  }
  return samples;
}

// The samples divided among ranks.
EvaluationInput InputOf(const std::vector<Sample>& samples, size_t ranks) {
  EvaluationInput input;
  input.evaluation = 1;
  for (size_t rank = 0; rank < ranks; ++rank) {
    EvaluationShare share;
    std::map<float, std::pair<uint32_t, uint32_t>> counts;
    for (size_t i = rank; i < samples.size(); i += ranks) {
      const Sample& sample = samples[i];
      ++share.samples;
      const double p = Probability(sample.logit);
      share.logloss_sum -= std::log(sample.positive ? p : 1.0 - p);
      share.correct += (sample.logit > 0) == sample.positive;
      ++(sample.positive ? counts[sample.logit].first : counts[sample.logit].second);
    }
    for (const auto& [score, count] : counts)
      share.scores.push_back({score, count.first, count.second});
    input.ranks.push_back(std::move(share));
  }
  return input;
}

TEST(EvaluationMetricsTest, CalibrationAndEntropyEqualTheirDefinitions) {
  const std::vector<Sample> samples = Clicks(3000, 20261127);
  double predictions = 0, positives = 0, logloss = 0;
  for (const Sample& sample : samples) {
    const double p = Probability(sample.logit);
    predictions += p;
    positives += sample.positive;
    logloss -= std::log(sample.positive ? p : 1.0 - p);
  }
  const double share = positives / 3000;
  const double entropy = -share * std::log(share) - (1 - share) * std::log(1 - share);
  const EvaluationResult result = ComputeEvaluation(InputOf(samples, 3), LOGISTIC);
  EXPECT_NEAR(result.calibration(), predictions / positives, 1e-12);
  EXPECT_GT(result.calibration(), 1.2) << "the clicks are overestimated";
  EXPECT_NEAR(result.normalized_entropy(), logloss / 3000 / entropy, 1e-12);
}

TEST(EvaluationMetricsTest, BinsAreEquallyLargeAndCoverAllSamples) {
  std::vector<Sample> samples = Clicks(3000, 7);
  const EvaluationResult result = ComputeEvaluation(InputOf(samples, 2), LOGISTIC);
  ASSERT_EQ(result.calibration_bins_size(), 10);
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.logit < b.logit; });
  size_t begin = 0;
  for (const CalibrationBin& bin : result.calibration_bins()) {
    EXPECT_NEAR(static_cast<double>(bin.samples()), 300, 25);
    const size_t end = begin + bin.samples();
    ASSERT_LE(end, samples.size());
    if (end < samples.size()) {
      EXPECT_LT(samples[end - 1].logit, samples[end].logit);
    }
    double predictions = 0, positives = 0;
    for (size_t i = begin; i < end; ++i) {
      predictions += Probability(samples[i].logit);
      positives += samples[i].positive;
    }
    EXPECT_NEAR(bin.mean_prediction(), predictions / static_cast<double>(end - begin), 1e-12);
    EXPECT_NEAR(bin.mean_label(), positives / static_cast<double>(end - begin), 1e-12);
    begin = end;
  }
  EXPECT_EQ(begin, samples.size());
}

TEST(EvaluationMetricsTest, EqualPredictionsShareABin) {
  std::vector<Sample> samples(90, Sample{-1, false});
  samples.insert(samples.end(), 10, Sample{2, true});
  const EvaluationResult result = ComputeEvaluation(InputOf(samples, 1), LOGISTIC);
  ASSERT_EQ(result.calibration_bins_size(), 2);
  EXPECT_EQ(result.calibration_bins(0).samples(), 90u);
  EXPECT_EQ(result.calibration_bins(1).mean_label(), 1);
}

TEST(EvaluationMetricsTest, MetricsOfScoresDoNotDependOnTheNumberOfRanks) {
  const std::vector<Sample> samples = Clicks(3000, 4);
  const EvaluationResult one = ComputeEvaluation(InputOf(samples, 1), LOGISTIC);
  for (const size_t ranks : {2, 3, 7}) {
    const EvaluationResult result = ComputeEvaluation(InputOf(samples, ranks), LOGISTIC);
    EXPECT_EQ(result.auc(), one.auc());
    EXPECT_EQ(result.calibration(), one.calibration());
    ASSERT_EQ(result.calibration_bins_size(), one.calibration_bins_size());
    for (int i = 0; i < one.calibration_bins_size(); ++i) {
      EXPECT_EQ(result.calibration_bins(i).SerializeAsString(),
                one.calibration_bins(i).SerializeAsString());
    }
  }
}

TEST(EvaluationMetricsTest, OneLabelAloneHasOnlyWhatIsDefined) {
  const std::vector<Sample> negatives(5, Sample{0.5f, false});
  const EvaluationResult none = ComputeEvaluation(InputOf(negatives, 1), LOGISTIC);
  EXPECT_FALSE(none.has_calibration());
  EXPECT_FALSE(none.has_normalized_entropy());
  const std::vector<Sample> positives(5, Sample{0.5f, true});
  const EvaluationResult all = ComputeEvaluation(InputOf(positives, 1), LOGISTIC);
  EXPECT_TRUE(all.has_calibration());
  EXPECT_FALSE(all.has_normalized_entropy());
  EXPECT_FALSE(all.has_gauc());
}

TEST(EvaluationMetricsTest, RoundedScoresBoundTheErrorOfTheAuc) {
  const std::vector<Sample> samples = Clicks(3000, 9);
  std::vector<Sample> rounded = samples;
  for (Sample& sample : rounded) sample.logit = std::floor(sample.logit * 2) / 2;
  EvaluationInput input = InputOf(rounded, 2);
  input.rounded_scores = true;
  const EvaluationResult exact = ComputeEvaluation(InputOf(samples, 2), LOGISTIC);
  const EvaluationResult result = ComputeEvaluation(input, LOGISTIC);
  EXPECT_FALSE(exact.has_auc_error_max());
  ASSERT_TRUE(result.has_auc_error_max());
  EXPECT_NE(result.auc(), exact.auc());
  EXPECT_LE(std::abs(result.auc() - exact.auc()), result.auc_error_max());
  EXPECT_LT(result.auc_error_max(), 0.1);
}

TEST(EvaluationMetricsTest, AllRoundedScoresInOneBucketLeaveTheAucOpen) {
  std::vector<Sample> samples(10, Sample{0.5f, false});
  samples[3].positive = true;
  EvaluationInput input = InputOf(samples, 1);
  input.rounded_scores = true;
  const EvaluationResult result = ComputeEvaluation(input, LOGISTIC);
  EXPECT_EQ(result.auc(), 0.5);
  EXPECT_EQ(result.auc_error_max(), 0.5);
}

TEST(EvaluationMetricsTest, GaucIsTheMeanOfTheGroupsWeightedBySamples) {
  EvaluationInput input = InputOf(Clicks(100, 3), 2);
  // Groups of 3 samples with AUC 1, of 6 with AUC 1/8, and of 5 with AUC 3.5/6.
  AucCounter first, second, third;
  first.Add(0, 2);
  first.Add(1, 0);
  second.Add(3, 0);
  second.Add(0, 1);
  second.Add(1, 0);
  second.Add(0, 1);
  third.Add(0, 1);
  third.Add(2, 0);
  third.Add(1, 1);
  input.ranks[0].groups = 1;
  input.ranks[0].group_samples = 3;
  input.ranks[0].group_auc_sum = first.WeightedAuc();
  input.ranks[1].groups = 2;
  input.ranks[1].group_samples = 11;
  input.ranks[1].group_auc_sum = second.WeightedAuc() + third.WeightedAuc();
  const EvaluationResult result = ComputeEvaluation(input, LOGISTIC);
  // second: of 4 x 2 pairs, the fourth positive beats the first negative.
  // third: of 3 x 2 pairs, the positives win 3 against the first negative, and one ties with the
  // second.
  const double expected = (3 * 1.0 + 6 * (1.0 / 8) + 5 * (3.5 / 6)) / 14;
  EXPECT_NEAR(result.gauc(), expected, 1e-9);
  EXPECT_EQ(result.groups(), 3u);
  EXPECT_EQ(result.group_samples(), 14u);
}

TEST(EvaluationMetricsTest, NdcgIsTheMeanOfTheGroups) {
  for (const Loss loss : {LOGISTIC, SQUARED}) {
    EvaluationInput input = InputOf(Clicks(100, 3), 2);
    EXPECT_FALSE(ComputeEvaluation(input, loss).has_ndcg());
    input.ranks[0].ndcg_groups = 1;
    input.ranks[0].ndcg_sum = uint64_t{1} << 32;
    input.ranks[1].ndcg_groups = 3;
    input.ranks[1].ndcg_sum = uint64_t{1} << 31;
    const EvaluationResult result = ComputeEvaluation(input, loss);
    EXPECT_EQ(result.ndcg(), 1.5 / 4);
    EXPECT_EQ(result.ndcg_groups(), 4u);
  }
}

TEST(EvaluationMetricsTest, LargestGroupDoesNotOverflow) {
  AucCounter counter;
  counter.Add(0, 0x7fffffffu);
  counter.Add(0x7fffffffu, 0);
  EXPECT_EQ(counter.WeightedAuc(), uint64_t{0xfffffffe} << 32);
}

TEST(EvaluationMetricsTest, SquaredLossHasMeanAbsoluteError) {
  EvaluationInput input;
  for (const double error : {3.0, 5.0}) {
    EvaluationShare share;
    share.samples = 2;
    share.absolute_error_sum = error;
    share.squared_error_sum = error * error;
    input.ranks.push_back(share);
  }
  const EvaluationResult result = ComputeEvaluation(input, SQUARED);
  EXPECT_EQ(result.mae(), 2.0);
  EXPECT_EQ(result.rmse(), std::sqrt(34.0 / 4));
  EXPECT_FALSE(result.has_calibration());
}

}  // namespace
}  // namespace pawl
