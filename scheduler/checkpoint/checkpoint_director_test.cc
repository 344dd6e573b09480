#include "scheduler/checkpoint/checkpoint_director.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

class CheckpointDirectorTest : public testing::Test {
 protected:
  static Job JobWithFolder() {
    Job job;
    job.mutable_checkpoint()->set_dir("/own");
    job.mutable_model()->mutable_fm()->set_dim(4);
    return job;
  }
  static CheckpointDirector::Progress Training(uint64_t step) {
    CheckpointDirector::Progress progress;
    progress.state = RUNNING;
    progress.step = step;
    progress.has_training = true;
    return progress;
  }

  SimulatedClock clock_;
  CheckpointDirector director_{JobWithFolder(), /*enabled=*/true, clock_.Now()};
};

TEST_F(CheckpointDirectorTest, RequestNeedsARunningJob) {
  CheckpointDirector::Progress progress = Training(5);
  progress.state = STARTING;
  EXPECT_EQ(director_.Request("", progress).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(director_.Request("", Training(5)).value(), "/own");
  EXPECT_EQ(director_.Request("/other", Training(5)).value(), "/other");
}

TEST_F(CheckpointDirectorTest, CompletedCheckpointAnswersItsFolder) {
  ASSERT_TRUE(director_.Request("", Training(5)).ok());
  const auto order = director_.Next(Training(5), clock_.Now());
  ASSERT_TRUE(order.has_value());
  const CheckpointDirector::Outcome outcome = director_.OnCompleted(*order, "/own/a", 7);
  EXPECT_TRUE(outcome.changed);
  EXPECT_FALSE(outcome.end_decided);
  EXPECT_EQ(outcome.answered_dir, "/own");
  ASSERT_TRUE(outcome.answer.ok());
  EXPECT_EQ(outcome.answer->folder(), "/own/a");
}

TEST_F(CheckpointDirectorTest, TransientFailureAnswersNoCaller) {
  ASSERT_TRUE(director_.Request("", Training(5)).ok());
  const auto order = director_.Next(Training(5), clock_.Now());
  ASSERT_TRUE(order.has_value());
  const CheckpointDirector::Outcome outcome =
      director_.OnFailed(*order, absl::AbortedError("a partition moved"), clock_.Now());
  EXPECT_FALSE(outcome.changed);
  EXPECT_EQ(outcome.answered_dir, "");
  EXPECT_TRUE(director_.Next(Training(5), clock_.Now()).has_value()) << "it is attempted again";
}

TEST_F(CheckpointDirectorTest, FinalCheckpointIsRetriedUntilItsTimeout) {
  ASSERT_TRUE(director_.WantsEnd());
  const CheckpointDirector::EndOrder end =
      director_.BeginEnd(20, kEndCheckpointTimeout, clock_.Now());
  ASSERT_TRUE(end.order.has_value());
  EXPECT_EQ(end.replaced_dir, "");
  director_.OnFailed(*end.order, absl::UnavailableError("busy"), clock_.Now());
  EXPECT_FALSE(director_.ContinueEnd(clock_.Now()).order.has_value()) << "after a pause";
  clock_.Advance(kEndCheckpointPause);
  EXPECT_TRUE(director_.ContinueEnd(clock_.Now()).order.has_value());
  clock_.Advance(kEndCheckpointTimeout);
  const CheckpointDirector::EndProgress last = director_.ContinueEnd(clock_.Now());
  EXPECT_FALSE(last.order.has_value());
  EXPECT_TRUE(last.outcome.end_decided);
  EXPECT_FALSE(last.outcome.answer.ok());
  EXPECT_FALSE(director_.WantsEnd());
}

TEST_F(CheckpointDirectorTest, TimeInWhichNoAttemptCanSucceedDoesNotCount) {
  ASSERT_TRUE(director_.BeginEnd(20, kEndCheckpointTimeout, clock_.Now()).order.has_value());
  clock_.Advance(2 * kEndCheckpointTimeout);
  director_.PostponeEnd(2 * kEndCheckpointTimeout);
  EXPECT_FALSE(director_.ContinueEnd(clock_.Now()).outcome.end_decided);
  clock_.Advance(kEndCheckpointTimeout + std::chrono::seconds(1));
  EXPECT_TRUE(director_.ContinueEnd(clock_.Now()).outcome.end_decided);
}

TEST_F(CheckpointDirectorTest, ServingJobWithoutATrainingHasNoCuts) {
  Job job = JobWithFolder();
  job.clear_model();
  job.mutable_checkpoint()->set_every_seconds(10);
  CheckpointDirector director(job, /*enabled=*/true, clock_.Now());
  CheckpointDirector::Progress progress = Training(0);
  progress.has_training = false;
  clock_.Advance(std::chrono::seconds(60));
  EXPECT_FALSE(director.Next(progress, clock_.Now()).has_value());
  EXPECT_TRUE(director.Next(Training(5), clock_.Now()).has_value());
}

TEST_F(CheckpointDirectorTest, RestoredFinalCheckpointIsNotMadeAgain) {
  StoredRestore restore;
  restore.set_dir("/own");
  restore.set_name(CheckpointStore::NameOf("job", 20, /*is_final=*/true));
  restore.set_step(20);
  director_.StartFrom(restore, /*last_table=*/3);
  EXPECT_TRUE(director_.loading());
  director_.OnLoaded();
  EXPECT_FALSE(director_.loading());
  EXPECT_FALSE(director_.BeginEnd(20, kEndCheckpointTimeout, clock_.Now()).order.has_value());
  EXPECT_EQ(director_.Status().end_folder(),
            "/own/" + CheckpointStore::NameOf("job", 20, /*is_final=*/true));
}

}  // namespace
}  // namespace pawl
