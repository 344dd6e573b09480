#include "worker/train/evaluation_report.h"

#include <cstring>
#include <limits>

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
  predictions.scores = std::move(scores);
  ASSERT_TRUE(report.Add(batch, predictions).ok());
}

std::vector<float> ScoresOf(const ReportEvaluationRequest& part) {
  std::vector<float> scores(part.scores().size() / sizeof(float));
  std::memcpy(scores.data(), part.scores().data(), part.scores().size());
  return scores;
}

TEST(EvaluationReportTest, CountsDistinctScoresInAscendingOrder) {
  EvaluationReport report(/*with_scores=*/true);
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
  EvaluationReport report(true);
  Add(report, {1, 0}, {0.0f, -0.0f});
  const auto parts = report.TakeParts({});
  EXPECT_EQ(ScoresOf(parts[0]), std::vector<float>{0.0f});
}

TEST(EvaluationReportTest, HeaderIsInAllPartsAndSumsInTheFirst) {
  EvaluationReport report(true);
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
  EvaluationReport report(false);
  Add(report, {3, 4}, {3.0f, 1.0f});
  const auto parts = report.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].samples(), 2u);
  EXPECT_TRUE(parts[0].scores().empty());
}

TEST(EvaluationReportTest, EmptyShareIsReported) {
  EvaluationReport report(true);
  const auto parts = report.TakeParts({});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].parts(), 1u);
  EXPECT_EQ(parts[0].samples(), 0u);
}

TEST(EvaluationReportTest, NonFinitePredictionIsAnError) {
  EvaluationReport report(true);
  Batch batch;
  batch.samples = 1;
  batch.labels = {1};
  Predictions predictions;
  predictions.scores = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(report.Add(batch, predictions).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace pawl
