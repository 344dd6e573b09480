#include "scheduler/startup/startup.h"

#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class StartupTest : public testing::Test {
 protected:
  StartupTest() {
    options_.job.set_name("flights");
    options_.servers = 2;
    options_.workers = 3;
    *state_.mutable_job() = options_.job;
    state_.set_servers(2);
    state_.set_workers(3);
    state_.set_job_id(77);
    state_.set_state(RUNNING);
  }

  absl::StatusOr<std::optional<SchedulerState>> Find() {
    return StateToResume(StoredState{1, state_.SerializeAsString()}, options_, startup_);
  }
  bool Resumes() {
    const auto found = Find();
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && found->has_value();
  }
  void Close(JobState state) {
    state_.set_state(state);
    state_.set_closed(true);
  }

  CoordinatorOptions options_;
  Startup startup_{.job = "flights.pbtxt", .place = "file:/state"};
  SchedulerState state_;
};

TEST_F(StartupTest, StateOfThisJobIsResumed) {
  EXPECT_TRUE(Resumes());
  EXPECT_EQ((*Find())->job_id(), 77u);
}

TEST_F(StartupTest, NothingStoredMeansNothingToResume) {
  EXPECT_FALSE(StateToResume(std::nullopt, options_, startup_)->has_value());
}

TEST_F(StartupTest, UnfinishedJobIsNotDiscarded) {
  state_.mutable_job()->set_seed(5);
  EXPECT_TRUE(absl::IsFailedPrecondition(Find().status()));
  EXPECT_NE(Find().status().message().find("--job=flights.pbtxt"), std::string::npos)
      << Find().status();
  // Its nodes would be locked out.
  state_.set_state(FAILED);
  EXPECT_TRUE(absl::IsFailedPrecondition(Find().status()));
  EXPECT_NE(Find().status().message().find("some nodes may not know"), std::string::npos)
      << Find().status();
  Close(FAILED);
  EXPECT_FALSE(Resumes());
}

TEST_F(StartupTest, StandbyIsForARunningJobOnly) {
  const auto stands_by = [&] {
    return StandsByFor(StoredState{1, state_.SerializeAsString()}, options_, startup_);
  };
  EXPECT_EQ(*StandsByFor(std::nullopt, options_, startup_), false);
  EXPECT_EQ(*stands_by(), true);
  state_.mutable_job()->set_seed(5);
  EXPECT_TRUE(absl::IsFailedPrecondition(stands_by().status()));
  // The scheduler of an ended job leads for some seconds more.
  state_.set_state(COMPLETED);
  EXPECT_EQ(*stands_by(), false);
  *state_.mutable_job() = options_.job;
  EXPECT_EQ(*stands_by(), false);
}

TEST_F(StartupTest, RebuiltStateIsContinuedDespiteRestore) {
  startup_.restore = "/checkpoints";
  EXPECT_FALSE(Find().ok());
  state_.set_rebuilt(true);
  EXPECT_TRUE(Resumes());
}

TEST_F(StartupTest, OtherServerAndWorkerCountsMakeAnotherJob) {
  state_.set_servers(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(Find().status()));
  state_.set_servers(2);
  state_.set_workers(1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Find().status()));
}

TEST_F(StartupTest, ClosedJobIsTrainedAgainOnlyOnRequest) {
  Close(COMPLETED);
  EXPECT_TRUE(Resumes());
  startup_.restart_ended_job = true;
  EXPECT_FALSE(Resumes());
}

TEST_F(StartupTest, RestartEndedJobDoesNotDiscardAnUnfinishedJob) {
  startup_.restart_ended_job = true;
  EXPECT_TRUE(Resumes());
}

TEST_F(StartupTest, JobWithAnotherStartIsNotRestored) {
  startup_.restore = "/checkpoints";
  EXPECT_TRUE(absl::IsFailedPrecondition(Find().status()));
  EXPECT_NE(Find().status().message().find("--restore=/checkpoints"), std::string::npos)
      << Find().status();
  Close(COMPLETED);
  EXPECT_FALSE(Resumes());
}

TEST_F(StartupTest, IgnoredRestartGivesAWarning) {
  startup_.restart_ended_job = true;
  EXPECT_EQ(ResumeWarning(state_, startup_), "");
  state_.set_state(COMPLETED);
  EXPECT_TRUE(Resumes());
  EXPECT_EQ(ResumeWarning(state_, startup_).rfind("--restart_ended_job is ignored", 0), 0u);
  state_.set_closed(true);
  EXPECT_EQ(ResumeWarning(state_, startup_), "");
}

TEST_F(StartupTest, IgnoredRestoreGivesAWarning) {
  startup_.restore = "/checkpoints";
  state_.set_state(COMPLETED);
  EXPECT_TRUE(Resumes());
  const std::string warning = ResumeWarning(state_, startup_);
  EXPECT_EQ(warning.rfind("--restore=/checkpoints is ignored: file:/state holds", 0), 0u)
      << warning;
  state_.mutable_restore()->set_dir("/checkpoints");
  EXPECT_EQ(ResumeWarning(state_, startup_), "") << "it was started so";
  state_.clear_restore();
  startup_.restore = "";
  EXPECT_EQ(ResumeWarning(state_, startup_), "");
}

TEST_F(StartupTest, EvaluationOfACheckpointNeedsOne) {
  options_.job.mutable_evaluation()->set_only(true);
  const absl::Status status = PrepareCheckpoints(Env::Real(), startup_, options_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("--restore"), std::string::npos) << status;
}

TEST_F(StartupTest, InvalidStateNamesThePlace) {
  const auto found = StateToResume(StoredState{1, "\xff"}, options_, startup_);
  EXPECT_TRUE(absl::IsDataLoss(found.status()));
  EXPECT_NE(found.status().message().find("file:/state"), std::string::npos) << found.status();
}

}  // namespace
}  // namespace pawl
