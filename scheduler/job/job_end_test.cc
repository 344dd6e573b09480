#include "scheduler/job/job_end.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Stage = JobEnd::Stage;

TEST(JobEndTest, EndGoesThroughAllPlannedStages) {
  JobEnd end;
  EXPECT_EQ(end.stage(), Stage::kNone);
  EXPECT_EQ(end.Begin({.restore_best = true, .checkpoint = true}), Stage::kRestoringBest);
  EXPECT_EQ(end.Advance(), Stage::kCheckpointing);
  EXPECT_EQ(end.Advance(), Stage::kInspecting);
  EXPECT_TRUE(end.CanFail());
  EXPECT_EQ(end.Advance(), Stage::kReporting);
  EXPECT_FALSE(end.CanFail());
  EXPECT_EQ(end.Advance(), Stage::kReported);
  EXPECT_TRUE(end.reported());
}

TEST(JobEndTest, UnplannedStagesAreSkipped) {
  JobEnd neither;
  EXPECT_EQ(neither.Begin({}), Stage::kInspecting);
  JobEnd only_best;
  EXPECT_EQ(only_best.Begin({.restore_best = true}), Stage::kRestoringBest);
  EXPECT_EQ(only_best.Advance(), Stage::kInspecting);
  JobEnd only_checkpoint;
  EXPECT_EQ(only_checkpoint.Begin({.checkpoint = true}), Stage::kCheckpointing);
}

TEST(JobEndTest, FailedJobOnlyReports) {
  JobEnd end;
  EXPECT_EQ(end.Finish(/*must_report=*/true), Stage::kReporting);
  EXPECT_EQ(end.Advance(), Stage::kReported);
  EXPECT_EQ(JobEnd().Finish(/*must_report=*/false), Stage::kReported);
}

TEST(JobEndTest, ContradictingServersGiveNoResult) {
  InspectResponse answer;
  PartitionDigest& digest = *answer.add_digests();
  digest.set_table(1);
  digest.set_rows(5);
  answer.mutable_counters()->set_step(20);
  JobEnd end;
  EXPECT_EQ(end.SetResult({{1, "w"}}, {answer, answer}).code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(end.digest().has_value());
  EXPECT_FALSE(end.counters().has_value());
}

TEST(JobEndTest, ResultIsRestored) {
  InspectResponse answer;
  answer.mutable_counters()->set_step(20);
  JobEnd end;
  ASSERT_TRUE(end.SetResult({}, {answer}).ok());
  SchedulerState stored;
  stored.set_state(COMPLETED);
  end.Save(stored);
  JobEnd restored;
  restored.Restore(stored);
  EXPECT_EQ(restored.digest(), 0u);
  EXPECT_EQ(restored.counters()->step(), 20u);
  EXPECT_TRUE(restored.reported());
}

}  // namespace
}  // namespace pawl
