#include "deploy/pawlctl/cluster/progress.h"

#include <limits>

#include "gtest/gtest.h"

namespace pawl {
namespace {

MonotonicTime At(double seconds) {
  return MonotonicTime(
      std::chrono::duration_cast<MonotonicDuration>(std::chrono::duration<double>(seconds)));
}

GetStatusResponse Running(uint64_t steps, uint64_t steps_total, uint64_t samples) {
  GetStatusResponse status;
  status.set_state(RUNNING);
  status.mutable_job()->set_epochs(2);
  status.set_steps(steps);
  status.set_steps_total(steps_total);
  status.set_samples(samples);
  status.set_loss(0.46031);
  return status;
}

Progress Full() {
  Progress progress;
  progress.state = RUNNING;
  progress.epoch = 2;
  progress.epochs = 2;
  progress.step = 610;
  progress.steps_total = 1220;
  progress.samples_per_s = 412344.7;
  progress.loss = 0.46031;
  progress.metric = "auc";
  progress.metric_value = 0.72159;
  progress.seconds_left = 72.4;
  return progress;
}

TEST(FormatProgress, ShowsAllKnownParts) {
  EXPECT_EQ(FormatProgress(Full(), 200),
            "epoch 2/2  step 610/1220  50%  412,345 samples/s  loss 0.4603  auc 0.7216  staleness "
            "0  1m 12s left");
}

TEST(FormatProgress, OmitsUnknownParts) {
  Progress progress;
  progress.state = RUNNING;
  progress.step = 5;
  EXPECT_EQ(FormatProgress(progress, 200), "step 5  staleness 0");
}

TEST(FormatProgress, FitsWidthAndDropsStepLast) {
  for (size_t width = 0; width < 120; ++width)
    EXPECT_LE(FormatProgress(Full(), width).size(), width);
  EXPECT_EQ(FormatProgress(Full(), 79),
            "epoch 2/2  step 610/1220  loss 0.4603  auc 0.7216  1m 12s left");
  EXPECT_EQ(FormatProgress(Full(), 14), "step 610/1220");
}

TEST(FormatProgress, ShowsNodesWhileStarting) {
  Progress progress;
  progress.state = STARTING;
  progress.servers = 1;
  EXPECT_EQ(FormatProgress(progress, 80), "starting: 1 server, 0 workers");
}

TEST(ProgressMeter, SpeedIsMeanOfWindow) {
  ProgressMeter meter;
  EXPECT_FALSE(meter.Update(Running(0, 1000, 0), At(100)).samples_per_s.has_value());
  Progress progress = meter.Update(Running(10, 1000, 1000), At(102));
  EXPECT_DOUBLE_EQ(*progress.samples_per_s, 500);
  EXPECT_DOUBLE_EQ(*progress.seconds_left, 990 / 5.0);
  // Twice as fast from here on: the old speed leaves the window.
  uint64_t steps = 10;
  for (int second = 1; second <= 40; ++second) {
    steps += 10;
    progress = meter.Update(Running(steps, 1000, steps * 100), At(102 + second));
  }
  EXPECT_NEAR(*progress.samples_per_s, 1000, 1e-6);
}

TEST(ProgressMeter, CountersMayRestart) {
  ProgressMeter meter;
  meter.Update(Running(500, 1000, 50000), At(0));
  EXPECT_FALSE(meter.Update(Running(0, 1000, 0), At(1)).samples_per_s.has_value());
  EXPECT_DOUBLE_EQ(*meter.Update(Running(1, 1000, 100), At(2)).samples_per_s, 100);
}

TEST(ProgressMeter, EpochCountsFromOne) {
  ProgressMeter meter;
  EXPECT_EQ(meter.Update(Running(0, 1220, 0), At(0)).epoch, 1u);
  EXPECT_EQ(meter.Update(Running(609, 1220, 1), At(1)).epoch, 1u);
  EXPECT_EQ(meter.Update(Running(610, 1220, 2), At(2)).epoch, 2u);
  EXPECT_EQ(meter.Update(Running(1220, 1220, 3), At(3)).epoch, 2u);
}

TEST(ProgressMeter, EpochIsUnknownWithMaxSteps) {
  GetStatusResponse status = Running(5, 10, 1);
  status.mutable_job()->set_max_steps(10);
  EXPECT_FALSE(ProgressMeter().Update(status, At(0)).epoch.has_value());
}

TEST(ProgressMeter, ShowsLatestEvaluationByJobsMetric) {
  GetStatusResponse status = Running(5, 10, 1);
  for (const double auc : {0.5, 0.7}) {
    EvaluationResult& result = *status.add_evaluations();
    result.set_auc(auc);
    result.set_logloss(0.4);
  }
  Progress progress = ProgressMeter().Update(status, At(0));
  EXPECT_EQ(progress.metric, "auc");
  EXPECT_DOUBLE_EQ(*progress.metric_value, 0.7);
  status.mutable_job()->mutable_evaluation()->mutable_early_stopping()->set_metric(LOGLOSS);
  progress = ProgressMeter().Update(status, At(0));
  EXPECT_EQ(progress.metric, "logloss");
  EXPECT_DOUBLE_EQ(*progress.metric_value, 0.4);
}

TEST(ProgressMeter, CountsPresentNodes) {
  GetStatusResponse status;
  status.set_state(STARTING);
  status.add_nodes()->set_role(SERVER_ROLE);
  status.add_nodes()->set_role(WORKER_ROLE);
  NodeStatus& gone = *status.add_nodes();
  gone.set_role(WORKER_ROLE);
  gone.set_gone(true);
  const Progress progress = ProgressMeter().Update(status, At(0));
  EXPECT_EQ(progress.servers, 1u);
  EXPECT_EQ(progress.workers, 1u);
}

TEST(Format, CountsHaveThousandsSeparators) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
}

TEST(Format, DurationsHaveTwoUnits) {
  EXPECT_EQ(FormatSeconds(0.2), "0s");
  EXPECT_EQ(FormatSeconds(59.6), "1m 0s");
  EXPECT_EQ(FormatSeconds(7320), "2h 2m");
  EXPECT_EQ(FormatSeconds(-1), "0s");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::infinity()), "277777h 46m");
}

TEST(Format, ValuesHaveFourDigits) {
  EXPECT_EQ(FormatValue(0.46031), "0.4603");
  EXPECT_EQ(FormatValue(0.000123456), "0.0001235");
  EXPECT_EQ(FormatValue(0), "0.0000");
}

}  // namespace
}  // namespace pawl
