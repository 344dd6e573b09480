#include "scheduler/job/job_end.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Stage = JobEnd::Stage;

TEST(JobEndTest, EndGoesThroughAllStages) {
  JobEnd end;
  EXPECT_EQ(end.stage(), Stage::kNone);
  EXPECT_EQ(end.Advance(), Stage::kRestoringBest);
  EXPECT_EQ(end.Advance(), Stage::kCheckpointing);
  EXPECT_EQ(end.Advance(), Stage::kInspecting);
  EXPECT_TRUE(end.CanFail());
  EXPECT_EQ(end.Advance(), Stage::kReporting);
  EXPECT_FALSE(end.CanFail());
  EXPECT_EQ(end.Advance(), Stage::kReported);
  EXPECT_TRUE(end.reported());
  EXPECT_EQ(end.Advance(), Stage::kReported);
}

TEST(JobEndTest, FailedJobOnlyReports) {
  JobEnd end;
  end.Finish(/*must_report=*/true);
  EXPECT_EQ(end.stage(), Stage::kReporting);
  EXPECT_EQ(end.Advance(), Stage::kReported);
  JobEnd silent;
  silent.Finish(/*must_report=*/false);
  EXPECT_TRUE(silent.reported());
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
