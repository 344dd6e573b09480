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
  Curve curve(StatusAt(10, 1000, 2));
  EXPECT_TRUE(curve.Next(StatusAt(10, 1000, 3)).empty());
  const std::vector<CurvePoint> points = curve.Next(StatusAt(12, 1600, 4));
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, 12u);
  EXPECT_EQ(ValuesOf(points[0]), (Values{{"train/loss", 0.5},
                                         {"train/samples_per_s", 300},
                                         {"train/staleness_max", 0},
                                         {"tables/rows", 7},
                                         {"tables/parameter_bytes", 0}}));
  EXPECT_TRUE(curve.Next(StatusAt(12, 1600, 5)).empty());
}

TEST(CurveTest, EachEvaluationHasOnePoint) {
  GetStatusResponse status = StatusAt(10, 0, 0);
  AddEvaluation(status, 1, 5, 0.6);
  Curve curve(status);
  AddEvaluation(status, 2, 10, 0.7);
  AddEvaluation(status, 3, 15, 0.8);
  const std::vector<CurvePoint> points = curve.Next(status);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].step, 10u);
  EXPECT_EQ(ValuesOf(points[0]), (Values{{"eval/auc", 0.7}, {"eval/logloss", 0.25}}));
  EXPECT_EQ(points[1].step, 15u);
  // A job that continues another one may use its last number again.
  AddEvaluation(status, 3, 20, 0.9);
  EXPECT_EQ(curve.Next(status).size(), 1u);
  EXPECT_TRUE(curve.Next(status).empty());
}

}  // namespace
}  // namespace pawl
