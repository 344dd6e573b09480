#include "scheduler/evaluation/early_stopping_policy.h"

#include <cmath>

#include "gtest/gtest.h"

namespace pawl {
namespace {

EarlyStopping Settings(Metric metric, uint32_t patience, double min_delta = 0) {
  EarlyStopping settings;
  settings.set_metric(metric);
  settings.set_patience(patience);
  settings.set_min_delta(min_delta);
  return settings;
}

EvaluationResult WithAuc(uint64_t evaluation, double auc) {
  EvaluationResult result;
  result.set_evaluation(evaluation);
  result.set_auc(auc);
  return result;
}

TEST(EarlyStoppingPolicyTest, StopsAfterPatienceEvaluationsWithoutImprovement) {
  EarlyStoppingPolicy policy(Settings(AUC, 2));
  EXPECT_TRUE(policy.Observe(WithAuc(1, 0.6)).improved);
  EXPECT_FALSE(policy.Observe(WithAuc(2, 0.6)).stop);
  const auto better = policy.Observe(WithAuc(3, 0.7));
  EXPECT_TRUE(better.improved);
  EXPECT_FALSE(better.stop);
  EXPECT_FALSE(policy.Observe(WithAuc(4, 0.65)).stop);
  const auto last = policy.Observe(WithAuc(5, 0.69));
  EXPECT_FALSE(last.improved);
  EXPECT_TRUE(last.stop);
  EXPECT_EQ(policy.best()->evaluation(), 3u);
}

TEST(EarlyStoppingPolicyTest, ImprovementMustExceedMinDelta) {
  EarlyStoppingPolicy policy(Settings(AUC, 1, 0.25));
  policy.Observe(WithAuc(1, 0.5));
  EXPECT_FALSE(policy.Observe(WithAuc(2, 0.75)).improved);
  EXPECT_TRUE(policy.Observe(WithAuc(3, 0.76)).improved);
}

TEST(EarlyStoppingPolicyTest, NdcgIsBetterWhenHigher) {
  EarlyStoppingPolicy policy(Settings(NDCG, 1));
  EvaluationResult result;
  result.set_ndcg(0.5);
  EXPECT_TRUE(policy.Observe(result).improved);
  result.set_ndcg(0.6);
  EXPECT_TRUE(policy.Observe(result).improved);
  result.set_ndcg(0.55);
  EXPECT_TRUE(policy.Observe(result).stop);
}

TEST(EarlyStoppingPolicyTest, LossesAreBetterWhenLower) {
  for (const Metric metric : {LOGLOSS, RMSE}) {
    EarlyStoppingPolicy policy(Settings(metric, 1));
    EvaluationResult result;
    result.set_logloss(0.5);
    result.set_rmse(0.5);
    EXPECT_TRUE(policy.Observe(result).improved);
    result.set_logloss(0.4);
    result.set_rmse(0.4);
    EXPECT_TRUE(policy.Observe(result).improved);
    result.set_logloss(0.45);
    result.set_rmse(0.45);
    EXPECT_TRUE(policy.Observe(result).stop);
  }
}

TEST(EarlyStoppingPolicyTest, MissingMetricAndNanAreNoImprovement) {
  EarlyStoppingPolicy policy(Settings(AUC, 2));
  EXPECT_FALSE(policy.Observe(EvaluationResult()).improved);
  EXPECT_TRUE(policy.Observe(WithAuc(2, std::nan(""))).stop);
  EXPECT_FALSE(policy.best().has_value());
}

// A restored job may have another metric and other evaluation data.
TEST(EarlyStoppingPolicyTest, IncomparableBestIsIgnored) {
  EvaluationResult without;
  without.set_auc(0.9);
  EvaluationResult nan = without;
  nan.set_logloss(std::nan(""));
  for (const EvaluationResult& best : {without, nan}) {
    EarlyStoppingPolicy policy(Settings(LOGLOSS, 2));
    policy.Restore(best, 0);
    EvaluationResult result;
    result.set_evaluation(2);
    result.set_logloss(0.5);
    EXPECT_TRUE(policy.Observe(result).improved);
    EXPECT_EQ(policy.best()->evaluation(), 2u);
  }
}

}  // namespace
}  // namespace pawl
