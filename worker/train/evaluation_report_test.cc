#include "worker/train/evaluation_report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "gtest/gtest.h"

namespace pawl {
namespace {

void Add(EvaluationReport& report, std::vector<float> labels, std::vector<float> scores) {
  Batch batch;
  batch.samples = static_cast<uint32_t>(labels.size());
  batch.labels = std::move(labels);
  Predictions predictions;
  predictions.sums.samples = batch.samples;
  predictions.sums.logloss_sum = 0.5 * batch.samples;
  predictions.sums.absolute_error_sum = 2.0 * batch.samples;
  predictions.scores = std::move(scores);
  ASSERT_TRUE(report.Add(batch, predictions).ok());
}

std::vector<float> ScoresOf(const ReportEvaluationRequest& part) {
  std::vector<float> scores(part.scores().size() / sizeof(float));
  std::memcpy(scores.data(), part.scores().data(), part.scores().size());
  return scores;
}

TEST(EvaluationReportTest, CountsDistinctScoresInAscendingOrder) {
  EvaluationReport report(ReportedScores::kExact);
  Add(report, {1, 0, 1}, {2.5f, -1.0f, -3.0f});
  Add(report, {0, 1, -1}, {2.5f, 2.5f, 1e-20f});
  const auto parts = report.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(ScoresOf(parts[0]), (std::vector<float>{-3.0f, -1.0f, 1e-20f, 2.5f}));
  EXPECT_EQ(std::vector<uint32_t>(parts[0].positives().begin(), parts[0].positives().end()),
            (std::vector<uint32_t>{1, 0, 0, 2}));
  EXPECT_EQ(std::vector<uint32_t>(parts[0].negatives().begin(), parts[0].negatives().end()),
            (std::vector<uint32_t>{0, 1, 1, 1}));
}

TEST(EvaluationReportTest, BothZerosAreOneScore) {
  EvaluationReport report(ReportedScores::kExact);
  Add(report, {1, 0}, {0.0f, -0.0f});
  const auto parts = report.TakeParts({});
  EXPECT_EQ(ScoresOf(parts[0]), std::vector<float>{0.0f});
}

TEST(EvaluationReportTest, HeaderIsInAllPartsAndSumsInTheFirst) {
  EvaluationReport report(ReportedScores::kExact);
  std::vector<float> labels(kMaxScoresInPart + 1, 1.0f), scores;
  for (size_t i = 0; i < labels.size(); ++i) scores.push_back(static_cast<float>(i));
  Add(report, labels, scores);
  ReportEvaluationRequest header;
  header.set_evaluation(3);
  header.set_step(17);
  header.set_rank(2);
  header.set_final(true);
  const auto parts = report.TakeParts(header);
  ASSERT_EQ(parts.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(parts[i].part(), i);
    EXPECT_EQ(parts[i].parts(), 2u);
    EXPECT_EQ(parts[i].evaluation(), 3u);
    EXPECT_EQ(parts[i].step(), 17u);
    EXPECT_EQ(parts[i].rank(), 2u);
    EXPECT_TRUE(parts[i].final());
    EXPECT_LE(parts[i].ByteSizeLong(), size_t{1} << 20);
  }
  EXPECT_EQ(parts[0].samples(), labels.size());
  EXPECT_DOUBLE_EQ(parts[0].logloss_sum(), 0.5 * static_cast<double>(labels.size()));
  EXPECT_EQ(parts[1].samples(), 0u);
  EXPECT_EQ(ScoresOf(parts[1]), std::vector<float>{static_cast<float>(kMaxScoresInPart)});
}

TEST(EvaluationReportTest, LargestPartFitsTheMessageLimit) {
  ReportEvaluationRequest part;
  part.mutable_scores()->resize(kMaxScoresInPart * sizeof(float));
  for (size_t i = 0; i < kMaxScoresInPart; ++i) {
    part.add_positives(std::numeric_limits<uint32_t>::max());
    part.add_negatives(std::numeric_limits<uint32_t>::max());
  }
  EXPECT_LT(part.ByteSizeLong(), size_t{1} << 20);
}

TEST(EvaluationReportTest, WithoutScoresOnlySumsAreReported) {
  EvaluationReport report(ReportedScores::kNone);
  Add(report, {3, 4}, {3.0f, 1.0f});
  const auto parts = report.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].samples(), 2u);
  EXPECT_TRUE(parts[0].scores().empty());
  EXPECT_EQ(parts[0].absolute_error_sum(), 4.0);
}

TEST(EvaluationReportTest, RoundedScoresKeepTheirOrderAndTwelveBits) {
  EvaluationReport exact(ReportedScores::kExact);
  EvaluationReport rounded(ReportedScores::kRounded);
  std::mt19937 random(20261127);
  std::vector<float> labels, scores;
  for (int i = 0; i < 20000; ++i) {
    scores.push_back((static_cast<float>(random()) / 4294967296.0f - 0.5f) * 20);
    labels.push_back(static_cast<float>(random() % 2));
  }
  for (const float edge :
       {0.0f, -0.0f, std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
        std::numeric_limits<float>::denorm_min()}) {
    scores.push_back(edge);
    labels.push_back(1);
  }
  Add(exact, labels, scores);
  Add(rounded, labels, scores);
  const auto exact_parts = exact.TakeParts({});
  const auto parts = rounded.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(exact_parts[0].rounded_scores());
  EXPECT_TRUE(parts[0].rounded_scores());
  const std::vector<float> values = ScoresOf(parts[0]);
  EXPECT_LT(values.size(), ScoresOf(exact_parts[0]).size());
  uint64_t counted = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(std::isfinite(values[i]));
    if (i > 0) {
      ASSERT_LT(values[i - 1], values[i]);
    }
    counted += parts[0].positives(static_cast<int>(i)) + parts[0].negatives(static_cast<int>(i));
  }
  EXPECT_EQ(counted, labels.size());
  // Each score has a rounded one nearby.
  for (const float score : scores) {
    const auto above = std::lower_bound(values.begin(), values.end(), score);
    float nearest = std::numeric_limits<float>::infinity();
    if (above != values.end()) nearest = *above - score;
    if (above != values.begin()) nearest = std::min(nearest, score - *(above - 1));
    EXPECT_LE(nearest, std::abs(score) / 4096 + 1e-38f) << score;
  }
}

TEST(EvaluationReportTest, RanksRoundEqualScoresEqually) {
  EvaluationReport one(ReportedScores::kRounded), other(ReportedScores::kRounded);
  Add(one, {1, 0}, {1.25f, -3.0f});
  Add(other, {0, 0, 1}, {-3.0f, 7.0f, 1.2500001f});
  const std::vector<float> scores = ScoresOf(one.TakeParts({})[0]);
  const std::vector<float> others = ScoresOf(other.TakeParts({})[0]);
  EXPECT_EQ(scores[0], others[0]);
  EXPECT_EQ(scores[1], others[1]);
}

struct GroupedSample {
  uint64_t group;
  float score;
  bool positive;
};

ReportEvaluationRequest ReportOf(const std::vector<GroupedSample>& samples, ReportedScores scores) {
  EvaluationReport report(scores);
  Batch batch;
  batch.samples = static_cast<uint32_t>(samples.size());
  batch.label_count = 2;
  Predictions predictions;
  predictions.sums.samples = samples.size();
  std::vector<uint64_t> groups;
  for (const GroupedSample& sample : samples) {
    groups.push_back(sample.group);
    batch.labels.push_back(sample.positive);
    // This report is of the first label.
    batch.labels.push_back(!sample.positive);
    predictions.scores.push_back(sample.score);
  }
  EXPECT_TRUE(report.Add(batch, predictions, groups).ok());
  return report.TakeParts({})[0];
}

TEST(EvaluationReportTest, GroupsAreJudgedPairByPair) {
  std::mt19937 random(7);
  std::vector<GroupedSample> samples(500);
  for (GroupedSample& sample : samples) {
    sample.group = uint64_t{random() % 60} * 1000003;
    sample.score = static_cast<float>(random() % 40) / 8;
    sample.positive = random() % 8 == 0;
  }
  std::map<uint64_t, std::vector<GroupedSample>> groups;
  for (const GroupedSample& sample : samples) groups[sample.group].push_back(sample);
  double weighted = 0;
  uint64_t judged = 0, judged_samples = 0;
  for (const auto& [group, members] : groups) {
    double won = 0, pairs = 0;
    for (const GroupedSample& a : members) {
      for (const GroupedSample& b : members) {
        if (!a.positive || b.positive) continue;
        ++pairs;
        won += a.score > b.score ? 1.0 : a.score == b.score ? 0.5 : 0.0;
      }
    }
    if (pairs == 0) continue;
    ++judged;
    judged_samples += members.size();
    weighted += static_cast<double>(members.size()) * won / pairs;
  }
  ASSERT_LT(judged, groups.size()) << "some groups have one label only";
  for (const ReportedScores scores : {ReportedScores::kExact, ReportedScores::kRounded}) {
    const ReportEvaluationRequest part = ReportOf(samples, scores);
    EXPECT_EQ(part.groups(), judged);
    EXPECT_EQ(part.group_samples(), judged_samples);
    EXPECT_NEAR(std::ldexp(static_cast<double>(part.group_auc_sum()), -32), weighted, 1e-6);
  }
}

TEST(EvaluationReportTest, GroupsAreRanked) {
  // Group 5: relevances 0, 3 and 1 from the best prediction; group 9: none is relevant; group 2:
  // the best order. Two batches divide group 5.
  for (const uint32_t at : {1u, 10u}) {
    EvaluationReport report(ReportedScores::kNone, at);
    Batch batch;
    batch.samples = 5;
    batch.labels = {3, 0, 1, 0, 2};
    Predictions predictions;
    predictions.sums.samples = 5;
    predictions.scores = {0.5f, 0.25f, -1.5f, 4, 2};
    ASSERT_TRUE(report.Add(batch, predictions, {5, 9, 5, 9, 2}).ok());
    batch.samples = 2;
    batch.labels = {0, 0};
    predictions.sums.samples = 2;
    predictions.scores = {0.75f, 1};
    ASSERT_TRUE(report.Add(batch, predictions, {5, 2}).ok());
    const ReportEvaluationRequest part = report.TakeParts({})[0];
    EXPECT_EQ(part.ndcg_groups(), 2u);
    EXPECT_EQ(part.groups(), 0u) << "GAUC is for logistic loss";
    const double best = 7 + 1 / std::log2(3);
    const double ndcg = at == 1 ? 0 : (7 / std::log2(3) + 1.0 / 2) / best;
    EXPECT_NEAR(std::ldexp(static_cast<double>(part.ndcg_sum()), -32), ndcg + 1, 1e-9);
  }
}

TEST(EvaluationReportTest, PositiveLabelsAreTheRelevanceOfLogisticLoss) {
  EvaluationReport report(ReportedScores::kExact);
  Batch batch;
  batch.samples = 3;
  batch.labels = {-1, 1, -1};
  Predictions predictions;
  predictions.sums.samples = 3;
  predictions.scores = {3, 2, 1};
  ASSERT_TRUE(report.Add(batch, predictions, {1, 1, 1}).ok());
  const ReportEvaluationRequest part = report.TakeParts({})[0];
  EXPECT_EQ(part.groups(), 1u);
  EXPECT_NEAR(std::ldexp(static_cast<double>(part.ndcg_sum()), -32), 1 / std::log2(3), 1e-9);
}

TEST(EvaluationReportTest, EmptyShareIsReported) {
  EvaluationReport report(ReportedScores::kExact);
  const auto parts = report.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].parts(), 1u);
  EXPECT_EQ(parts[0].samples(), 0u);
}

TEST(EvaluationReportTest, NonFinitePredictionIsAnError) {
  EvaluationReport report(ReportedScores::kExact);
  Batch batch;
  batch.samples = 1;
  batch.labels = {1};
  Predictions predictions;
  predictions.scores = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(report.Add(batch, predictions).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace pawl
