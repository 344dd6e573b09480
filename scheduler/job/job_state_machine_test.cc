#include "scheduler/job/job_state_machine.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

TEST(JobStateMachineTest, JobRunsToCompletionAndTimesItsTraining) {
  SimulatedClock clock;
  JobStateMachine job;
  EXPECT_EQ(job.state(), STARTING);
  EXPECT_FALSE(job.Finish(clock.Now()));
  EXPECT_FALSE(job.Complete());
  clock.Advance(seconds(5));
  EXPECT_EQ(job.TrainSeconds(clock.Now()), 0);
  EXPECT_TRUE(job.Start(clock.Now()));
  EXPECT_FALSE(job.Start(clock.Now()));
  clock.Advance(seconds(10));
  EXPECT_DOUBLE_EQ(job.TrainSeconds(clock.Now()), 10);
  EXPECT_TRUE(job.Finish(clock.Now()));
  clock.Advance(seconds(3));
  EXPECT_TRUE(job.Complete());
  EXPECT_DOUBLE_EQ(job.TrainSeconds(clock.Now()), 10);
  EXPECT_TRUE(job.ended());
}

TEST(JobStateMachineTest, FirstEndStands) {
  SimulatedClock clock;
  JobStateMachine job;
  job.Start(clock.Now());
  EXPECT_TRUE(job.CheckNotEnded().ok());
  EXPECT_TRUE(job.EndEarly(FAILED, "server-1 died", clock.Now()));
  EXPECT_FALSE(job.EndEarly(FAILED, "worker-0 died", clock.Now()));
  EXPECT_FALSE(job.EndEarly(STOPPED, "enough", clock.Now()));
  EXPECT_FALSE(job.Finish(clock.Now()));
  EXPECT_EQ(job.state(), FAILED);
  EXPECT_EQ(job.CheckNotEnded().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(job.CheckNotEnded().message(), "the job has failed: server-1 died");
}

TEST(JobStateMachineTest, StoppedAndCompletedJobsAreUnavailable) {
  SimulatedClock clock;
  JobStateMachine stopped;
  EXPECT_TRUE(stopped.EndEarly(STOPPED, "enough", clock.Now()));
  EXPECT_EQ(stopped.CheckNotEnded().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(stopped.TrainSeconds(clock.Now()), 0);
  JobStateMachine completed;
  completed.Start(clock.Now());
  completed.Finish(clock.Now());
  completed.Complete();
  EXPECT_FALSE(completed.EndEarly(FAILED, "late", clock.Now()));
  EXPECT_EQ(completed.CheckNotEnded().code(), absl::StatusCode::kUnavailable);
}

TEST(JobStateMachineTest, RestoredStateContinuesItsTrainingTime) {
  SimulatedClock clock;
  clock.Advance(std::chrono::hours(1));
  JobStateMachine machine;
  machine.Restore(RUNNING, "", std::chrono::seconds(30), clock.Now());
  clock.Advance(std::chrono::seconds(2));
  EXPECT_DOUBLE_EQ(machine.TrainSeconds(clock.Now()), 32);
  EXPECT_TRUE(machine.Finish(clock.Now()));
  JobStateMachine failed;
  failed.Restore(FAILED, "why", std::chrono::seconds(30), clock.Now());
  EXPECT_TRUE(failed.ended());
  EXPECT_EQ(failed.reason(), "why");
  EXPECT_DOUBLE_EQ(failed.TrainSeconds(clock.Now()), 30);
}

}  // namespace
}  // namespace pawl
