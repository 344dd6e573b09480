#include "scheduler/status/metrics_file.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

JobReport Completed() {
  JobReport report;
  report.servers = 2;
  report.workers = 3;
  GetStatusResponse& status = report.status;
  status.mutable_job()->set_name("flights");
  status.mutable_job()->mutable_consistency()->set_mode(BOUNDED);
  status.mutable_job()->set_logical_workers(4);
  status.set_state(COMPLETED);
  status.set_steps(100);
  status.set_samples(4000);
  status.set_train_s(2.5);
  status.set_digest(0xab);
  status.mutable_counters()->set_pushes_applied(7);
  status.mutable_counters()->set_staleness_max(3);
  // Two of 1 and one of 5 or 6.
  StalenessHistogram& histogram = *status.mutable_counters()->mutable_clock_staleness();
  for (const uint64_t count : {0, 2, 0, 0, 0, 0, 1}) histogram.add_counts(count);
  histogram.set_sum(8);
  status.add_evaluations()->set_auc(0.7);
  UserMetric& metric = *status.add_metrics();
  metric.set_name("ctr");
  metric.set_step(99);
  metric.set_value(0.25);
  report.evaluation = status.evaluations(0);
  return report;
}

TEST(MetricsFileTest, EvaluationHasItsTimeAndItsCalibration) {
  JobReport report = Completed();
  EvaluationResult& result = *report.evaluation;
  result.set_unix_ms(1700000000250);
  result.set_train_s(2.5);
  result.set_trained_samples(1500);
  result.set_normalized_entropy(0.875);
  result.set_calibration(std::nan(""));
  result.set_auc_error_max(0.001);
  result.set_gauc(0.625);
  result.set_groups(3);
  result.set_group_samples(40);
  result.set_ndcg(0.375);
  result.set_ndcg_groups(5);
  CalibrationBin& bin = *result.add_calibration_bins();
  bin.set_samples(12);
  bin.set_mean_prediction(0.25);
  bin.set_mean_label(0.5);
  const auto eval = nlohmann::json::parse(MetricsJson(report))["eval"];
  EXPECT_EQ(eval["time"], 1700000000.25);
  EXPECT_EQ(eval["train_s"], 2.5);
  EXPECT_EQ(eval["trained_samples"], 1500);
  EXPECT_EQ(eval["normalized_entropy"], 0.875);
  EXPECT_TRUE(eval["calibration"].is_null());
  EXPECT_EQ(eval["auc_error_max"], 0.001);
  EXPECT_EQ(eval["gauc"], 0.625);
  EXPECT_EQ(eval["groups"], 3);
  EXPECT_EQ(eval["group_samples"], 40);
  EXPECT_EQ(eval["ndcg"], 0.375);
  EXPECT_EQ(eval["ndcg_groups"], 5);
  EXPECT_EQ(
      eval["calibration_bins"],
      nlohmann::json::parse(R"([{"samples": 12, "mean_prediction": 0.25, "mean_label": 0.5}])"));
}

TEST(MetricsFileTest, FileHoldsTheFiguresOfTheJob) {
  const auto json = nlohmann::json::parse(MetricsJson(Completed()));
  EXPECT_EQ(json["job"], "flights");
  EXPECT_EQ(json["mode"], "BOUNDED");
  EXPECT_EQ(json["state"], "COMPLETED");
  EXPECT_EQ(json["servers"], 2);
  EXPECT_EQ(json["workers"], 3);
  EXPECT_EQ(json["logical_workers"], 4);
  EXPECT_EQ(json["steps"], 100);
  EXPECT_EQ(json["samples_per_s"], 1600.0);
  EXPECT_EQ(json["eval"]["auc"], 0.7);
  EXPECT_FALSE(json["eval"].contains("rmse"));
  EXPECT_EQ(json["evaluations"].size(), 1u);
  EXPECT_EQ(json["metrics"], nlohmann::json::parse(R"({"ctr": {"step": 99, "value": 0.25}})"));
  EXPECT_EQ(json["digest"], "000000ab");
  EXPECT_EQ(json["pushes_applied"], 7);
  EXPECT_EQ(json["pushes_deduplicated"], 0);
  EXPECT_EQ(json["staleness_max"], 3);
  EXPECT_EQ(json["clock_staleness"]["p99"], 6);
  EXPECT_EQ(json["clock_staleness"]["counts"], nlohmann::json::parse(R"({"1": 2, "6": 1})"));
  EXPECT_FALSE(json.contains("update_staleness"));
  EXPECT_FALSE(json.contains("failure"));
}

TEST(MetricsFileTest, FailedJobHasItsFailureAndNoDigest) {
  JobReport report;
  report.status.set_state(FAILED);
  report.status.set_failure("server-1 died \xff");
  report.status.set_loss(std::nan(""));
  const auto json = nlohmann::json::parse(MetricsJson(report));
  EXPECT_EQ(json["failure"].get<std::string>().substr(0, 13), "server-1 died");
  EXPECT_TRUE(json["digest"].is_null());
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["samples_per_s"], 0.0);
}

}  // namespace
}  // namespace pawl
