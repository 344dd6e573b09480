#include "worker/train/step_plan.h"

#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

Job JobOf(uint32_t epochs, uint64_t every_steps, uint64_t max_steps, bool has_eval = true) {
  Job job;
  job.mutable_data()->add_train("train");
  if (has_eval) job.mutable_data()->add_eval("eval");
  job.set_epochs(epochs);
  job.set_max_steps(max_steps);
  job.mutable_evaluation()->set_every_steps(every_steps);
  return job;
}

std::vector<uint64_t> Pauses(const StepPlan& plan) {
  std::vector<uint64_t> pauses;
  for (uint64_t steps = 0; steps < plan.total_steps();)
    pauses.push_back(steps = plan.NextPause(steps));
  return pauses;
}

std::vector<uint64_t> Numbers(const StepPlan& plan) {
  std::vector<uint64_t> numbers;
  for (const uint64_t pause : Pauses(plan)) numbers.push_back(plan.EvaluationNumber(pause));
  return numbers;
}

TEST(StepPlanTest, EvaluatesAfterEachEpochByDefault) {
  const StepPlan plan(JobOf(3, 0, 0), EpochSteps(10));
  EXPECT_EQ(plan.total_steps(), 30u);
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{10, 20, 30}));
  EXPECT_EQ(Numbers(plan), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(StepPlanTest, EvaluatesAtTheIntervalAndAtTheEnd) {
  const StepPlan plan(JobOf(2, 8, 0), EpochSteps(10));
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{8, 16, 20}));
  EXPECT_EQ(Numbers(plan), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(StepPlanTest, EvaluatesAfterEachEpochOfAnotherBatchSize) {
  EpochSteps epochs(10);
  epochs.ChangeAt(2, 3);
  const StepPlan plan(JobOf(4, 0, 0), epochs);
  EXPECT_EQ(plan.total_steps(), 26u);
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{10, 20, 23, 26}));
  EXPECT_EQ(Numbers(plan), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST(StepPlanTest, LastEvaluationIsNotRepeated) {
  const StepPlan plan(JobOf(2, 5, 0), EpochSteps(10));
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{5, 10, 15, 20}));
}

TEST(StepPlanTest, MaxStepsEndsTheJobEarly) {
  const StepPlan plan(JobOf(5, 0, 13), EpochSteps(10));
  EXPECT_EQ(plan.total_steps(), 13u);
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{10, 13}));
}

TEST(StepPlanTest, IntervalBeyondTheEndLeavesTheLastEvaluation) {
  const StepPlan plan(JobOf(1, uint64_t{1} << 63, 0), EpochSteps(10));
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{10}));
  EXPECT_EQ(Numbers(plan), (std::vector<uint64_t>{1}));
}

TEST(StepPlanTest, NoPauseWithoutEvaluationData) {
  const StepPlan plan(JobOf(3, 4, 0, /*has_eval=*/false), EpochSteps(10));
  EXPECT_EQ(Pauses(plan), (std::vector<uint64_t>{30}));
}

TEST(StepPlanTest, SuccessorFindsTheSamePauses) {
  const StepPlan plan(JobOf(2, 8, 0), EpochSteps(10));
  EXPECT_EQ(plan.NextPause(7), 8u);
  EXPECT_EQ(plan.NextPause(8), 16u);
  EXPECT_EQ(plan.NextPause(17), 20u);
  std::vector<uint64_t> pauses;
  for (uint64_t step = 0; step <= 21; ++step) {
    if (plan.IsPause(step)) pauses.push_back(step);
  }
  EXPECT_EQ(pauses, Pauses(plan));
  EXPECT_FALSE(StepPlan(JobOf(2, 8, 0, /*has_eval=*/false), EpochSteps(10)).IsPause(20));
}

TEST(StepPlanTest, WritesBackAtTheIntervalPausesAndEnd) {
  Job job;
  job.set_epochs(2);
  job.mutable_data()->add_eval("eval");
  job.mutable_all_reduce()->set_write_back_steps(4);
  const StepPlan plan(job, EpochSteps(7));
  std::vector<uint64_t> steps;
  for (uint64_t step = 0; step <= 14; ++step) {
    if (plan.IsWriteBack(step)) steps.push_back(step);
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{4, 7, 8, 12, 14}));
}

TEST(StepPlanTest, EvaluationOfACheckpointIsTheFirst) {
  Job job;
  job.mutable_data()->add_eval("eval");
  job.mutable_evaluation()->set_only(true);
  job.set_max_steps(3);
  for (const uint64_t step : {0, 1, 7, 5000}) {
    const StepPlan plan(job, EpochSteps(10), step);
    EXPECT_EQ(plan.total_steps(), step);
    EXPECT_EQ(plan.EvaluationNumber(step), 1u);
  }
}

}  // namespace
}  // namespace pawl
