#include "scheduler/curve/curve.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

GetStatusResponse StatusAt(uint64_t steps, uint64_t samples, double train_s) {
  GetStatusResponse status;
  status.set_steps(steps);
  status.set_samples(samples);
  status.set_train_s(train_s);
  status.set_loss(0.5);
  status.set_learning_rate(0.125);
  status.mutable_counters()->set_rows(7);
  return status;
}

void AddEvaluation(GetStatusResponse& status, uint64_t evaluation, uint64_t step, double auc) {
  EvaluationResult& result = *status.add_evaluations();
  result.set_evaluation(evaluation);
  result.set_step(step);
  result.set_auc(auc);
  result.set_logloss(0.25);
}

using Values = std::map<std::string, double>;

Values ValuesOf(const CurvePoint& point) { return {point.values.begin(), point.values.end()}; }

TEST(CurveTest, TrainingHasAPointOnceStepsHaveEnded) {
  Curve curve(StatusAt(0, 0, 2));
  EXPECT_TRUE(curve.Next(StatusAt(0, 0, 3)).empty());
  const std::vector<CurvePoint> points = curve.Next(StatusAt(12, 600, 4));
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, 12u);
  EXPECT_EQ(points[0].samples, 600u);
  EXPECT_EQ(points[0].train_s, 4);
  EXPECT_EQ(points[0].kind, CurvePoint::Kind::kTraining);
  EXPECT_EQ(ValuesOf(points[0]), (Values{{"train/loss", 0.5},
                                         {"train/samples_per_s", 300},
                                         {"train/learning_rate", 0.125},
                                         {"train/staleness_max", 0},
                                         {"tables/rows", 7},
                                         {"tables/parameter_bytes", 0}}));
  EXPECT_TRUE(curve.Next(StatusAt(12, 600, 5)).empty());
}

TEST(CurveTest, FirstPointAfterARestartHasNoRate) {
  // The figures before the restart may be lost.
  for (const uint64_t steps : {0, 10}) {
    Curve curve(StatusAt(steps, 100 * steps, 2), /*continues=*/true);
    EXPECT_EQ(ValuesOf(curve.Next(StatusAt(12, 1600, 4))[0]).count("train/samples_per_s"), 0u);
    EXPECT_EQ(ValuesOf(curve.Next(StatusAt(13, 1800, 5))[0]).at("train/samples_per_s"), 200);
  }
}

TEST(CurveTest, StalenessIsThatOfThePointsInterval) {
  GetStatusResponse status = StatusAt(10, 1000, 2);
  StalenessHistogram& histogram = *status.mutable_counters()->mutable_update_staleness();
  for (const uint64_t count : {0, 0, 0, 7}) histogram.add_counts(count);
  histogram.set_sum(21);
  Curve curve(status);
  status.set_steps(11);
  EXPECT_EQ(ValuesOf(curve.Next(status)[0]).count("train/update_staleness_mean"), 0u);
  status.set_steps(12);
  histogram.set_counts(1, 4);
  histogram.set_sum(25);
  const Values values = ValuesOf(curve.Next(status)[0]);
  EXPECT_EQ(values.at("train/update_staleness_mean"), 1);
  EXPECT_EQ(values.at("train/update_staleness_p99"), 1);
  EXPECT_EQ(values.count("train/clock_staleness_mean"), 0u);
}

TEST(CurveTest, EachEvaluationHasOnePoint) {
  GetStatusResponse status = StatusAt(10, 0, 0);
  AddEvaluation(status, 1, 5, 0.6);
  Curve curve(status);
  AddEvaluation(status, 2, 10, 0.7);
  AddEvaluation(status, 3, 15, 0.8);
  EvaluationResult& latest = *status.mutable_evaluations(2);
  latest.set_unix_ms(1700000000250);
  latest.set_train_s(2.5);
  latest.set_trained_samples(1500);
  latest.set_calibration(1.25);
  latest.set_auc_error_max(0.001);
  const std::vector<CurvePoint> points = curve.Next(status);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].step, 10u);
  EXPECT_EQ(ValuesOf(points[0]), (Values{{"eval/auc", 0.7}, {"eval/logloss", 0.25}}));
  EXPECT_EQ(points[1].step, 15u);
  EXPECT_EQ(points[1].kind, CurvePoint::Kind::kEvaluation);
  EXPECT_EQ(points[1].samples, 1500u);
  EXPECT_EQ(points[1].train_s, 2.5);
  EXPECT_EQ(points[1].unix_s, 1700000000.25);
  EXPECT_EQ(ValuesOf(points[1]), (Values{{"eval/auc", 0.8},
                                         {"eval/logloss", 0.25},
                                         {"eval/calibration", 1.25},
                                         {"eval/auc_error_max", 0.001}}));
  // A job that continues another one may use its last number again.
  AddEvaluation(status, 3, 20, 0.9);
  EXPECT_EQ(curve.Next(status).size(), 1u);
  EXPECT_TRUE(curve.Next(status).empty());
}

TEST(CurveTest, LowerNumbersOfARestoredJobHavePoints) {
  GetStatusResponse status = StatusAt(180, 0, 0);
  AddEvaluation(status, 9, 180, 0.6);
  Curve curve(status);
  AddEvaluation(status, 7, 210, 0.7);
  AddEvaluation(status, 8, 240, 0.8);
  const std::vector<CurvePoint> points = curve.Next(status);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].step, 210u);
  EXPECT_EQ(points[1].step, 240u);
  EXPECT_TRUE(curve.Next(status).empty());
}

TEST(CurveTest, EvaluationsThatTheFileLacksAreAdded) {
  GetStatusResponse status = StatusAt(20, 0, 0);
  status.mutable_checkpoint()->set_restored_step(5);
  AddEvaluation(status, 1, 5, 0.6);
  AddEvaluation(status, 2, 10, 0.7);
  AddEvaluation(status, 3, 15, 0.8);
  const auto steps = [&](uint64_t last) {
    std::vector<uint64_t> added;
    for (const CurvePoint& point : Curve(status, /*continues=*/true, last).Next(status))
      added.push_back(point.step);
    return added;
  };
  EXPECT_EQ(steps(15), std::vector<uint64_t>());
  EXPECT_EQ(steps(10), std::vector<uint64_t>{15});
  EXPECT_EQ(steps(0), (std::vector<uint64_t>{10, 15})) << "the first is of the former job";
}

void AddMetric(GetStatusResponse& status, const std::string& name, uint64_t step, double value) {
  UserMetric& metric = *status.add_metrics();
  metric.set_name(name);
  metric.set_step(step);
  metric.set_value(value);
}

TEST(CurveTest, MetricsThatHaveChangedHaveAPointForEachStep) {
  GetStatusResponse status = StatusAt(10, 1000, 2);
  AddMetric(status, "a", 9, 1);
  AddMetric(status, "b", 9, 2);
  AddMetric(status, "c", 3, 5);
  Curve curve(status);
  EXPECT_TRUE(curve.Next(status).empty());
  status.mutable_metrics(0)->set_step(11);
  status.mutable_metrics(1)->set_step(11);
  AddMetric(status, "d", 4, 6);
  const std::vector<CurvePoint> points = curve.Next(status);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].step, 4u);
  EXPECT_EQ(ValuesOf(points[0]), (Values{{"metrics/d", 6}}));
  EXPECT_EQ(points[1].kind, CurvePoint::Kind::kMetrics);
  EXPECT_EQ(points[1].step, 11u);
  EXPECT_EQ(points[1].train_s, 2);
  EXPECT_EQ(ValuesOf(points[1]), (Values{{"metrics/a", 1}, {"metrics/b", 2}}));
  // A step that is computed again replaces its figure.
  status.mutable_metrics(2)->set_value(7);
  const std::vector<CurvePoint> again = curve.Next(status);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(ValuesOf(again[0]), (Values{{"metrics/c", 7}}));
  EXPECT_TRUE(curve.Next(status).empty());
}

}  // namespace
}  // namespace pawl
