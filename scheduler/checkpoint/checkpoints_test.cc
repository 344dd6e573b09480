#include "scheduler/checkpoint/checkpoints.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

CheckpointPolicy Policy(uint64_t every_steps, uint64_t every_seconds) {
  CheckpointPolicy policy;
  policy.set_dir("/own");
  policy.set_every_steps(every_steps);
  policy.set_every_seconds(every_seconds);
  policy.set_keep(3);
  return policy;
}

class CheckpointsTest : public testing::Test {
 protected:
  Checkpoints Make(uint64_t every_steps, uint64_t every_seconds = 0) {
    return Checkpoints(Policy(every_steps, every_seconds), clock_.Now());
  }
  // The step of the next order; 0: none.
  uint64_t Next(Checkpoints& checkpoints, uint64_t step, uint64_t last_step = 0) {
    const auto order = checkpoints.Next(clock_.Now(), step, last_step);
    return order.has_value() ? order->step : 0;
  }

  SimulatedClock clock_;
};

TEST_F(CheckpointsTest, StepPolicyCutsAtUnreachedMultiples) {
  Checkpoints checkpoints = Make(10);
  EXPECT_EQ(Next(checkpoints, 0), 0u) << "it is too early";
  EXPECT_EQ(Next(checkpoints, 5), 10u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/own");
  EXPECT_EQ(checkpoints.in_progress()->keep, 3u);
  EXPECT_EQ(Next(checkpoints, 25), 0u) << "one at a time";
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  EXPECT_EQ(Next(checkpoints, 25), 30u);
  checkpoints.OnFailed(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(Next(checkpoints, 29), 0u) << "30 was requested";
  EXPECT_EQ(Next(checkpoints, 33), 40u);
}

TEST_F(CheckpointsTest, CutsAreAtMultiplesOfTheWriteBack) {
  Checkpoints checkpoints(Policy(10, 0), clock_.Now(), 25);
  EXPECT_EQ(Next(checkpoints, 18), 25u) << "20 rounded up";
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  ASSERT_TRUE(checkpoints.Request("/asked").ok());
  EXPECT_EQ(Next(checkpoints, 26), 50u) << "as soon as possible";
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/asked/a", 5);
  ASSERT_TRUE(checkpoints.Request("/asked").ok());
  EXPECT_EQ(Next(checkpoints, 51, 60), 60u) << "the last step is allowed too";
}

TEST_F(CheckpointsTest, FastTrainingIsAskedEarlier) {
  Checkpoints checkpoints = Make(1000);
  EXPECT_EQ(Next(checkpoints, 0), 0u);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Next(checkpoints, 600), 1000u) << "at 600 steps a second it is less than a second away";
}

TEST_F(CheckpointsTest, LateCheckpointDoublesTheLead) {
  Checkpoints checkpoints = Make(10);
  ASSERT_TRUE(checkpoints.Request("/asked").ok());
  EXPECT_EQ(Next(checkpoints, 100), 102u);
  checkpoints.OnTooLate(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 100), 0u) << "step 100 is out of date";
  EXPECT_EQ(Next(checkpoints, 101), 104u);
  checkpoints.OnTooLate(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 102), 107u);
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/asked/a", 5);
}

TEST_F(CheckpointsTest, MissedPeriodicCheckpointIsMadeSoon) {
  Checkpoints checkpoints = Make(1000);
  EXPECT_EQ(Next(checkpoints, 995), 1000u);
  checkpoints.OnMoved(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 1005), 0u) << "partitions may still move";
  clock_.Advance(kMissedCheckpointPause);
  EXPECT_EQ(Next(checkpoints, 1005), 1007u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/own");
  EXPECT_EQ(checkpoints.in_progress()->keep, 3u);
  checkpoints.OnTooLate(clock_.Now());
  clock_.Advance(kMissedCheckpointPause);
  EXPECT_EQ(Next(checkpoints, 1005), 0u) << "step 1005 is out of date";
  EXPECT_EQ(Next(checkpoints, 1007), 1010u);
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  EXPECT_EQ(Next(checkpoints, 1010), 0u);
  EXPECT_EQ(Next(checkpoints, 1995), 2000u);
  checkpoints.OnFailed(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(Next(checkpoints, 2005), 0u) << "it would fail again";
  EXPECT_EQ(Next(checkpoints, 2995), 3000u);
  checkpoints.OnMoved(clock_.Now());
  clock_.Advance(kMissedCheckpointPause);
  EXPECT_EQ(Next(checkpoints, 3002, 3005), 0u) << "the final checkpoint follows";
}

TEST_F(CheckpointsTest, MovedPartitionsKeepTheLead) {
  Checkpoints checkpoints = Make(1000);
  for (uint64_t step = 100; step < 130; ++step) {
    ASSERT_TRUE(checkpoints.Request("/asked").ok());
    ASSERT_NE(Next(checkpoints, step), 0u);
    checkpoints.OnMoved(clock_.Now());
  }
  EXPECT_EQ(Next(checkpoints, 200), 202u) << "no checkpoint was late";
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/asked/a", 5);
}

// A partition that moves past the step looks like a late request.
TEST_F(CheckpointsTest, LeadShrinksAfterTimelyCheckpoints) {
  Checkpoints checkpoints = Make(0);
  uint64_t step = 0;
  // The lead beyond the next step.
  const auto lead = [&](bool in_time) {
    step += 100;
    EXPECT_TRUE(checkpoints.Request("/asked").ok());
    const uint64_t at = Next(checkpoints, step);
    in_time ? checkpoints.OnCompleted(*checkpoints.in_progress(), "/asked/a", 5)
            : checkpoints.OnTooLate(clock_.Now());
    return at - step - 1;
  };
  for (const uint64_t grown : {1, 2, 4}) EXPECT_EQ(lead(/*in_time=*/false), grown);
  for (const uint64_t shrunk : {8, 4, 2, 1, 1}) {
    for (uint32_t i = 0; i < kCheckpointsBeforeLessLead; ++i)
      EXPECT_EQ(lead(/*in_time=*/true), shrunk) << i;
  }
  // The count restarts after a late checkpoint.
  for (uint32_t i = 0; i + 1 < kCheckpointsBeforeLessLead; ++i)
    EXPECT_EQ(lead(/*in_time=*/true), 1u);
  EXPECT_EQ(lead(/*in_time=*/false), 1u);
  for (uint32_t i = 0; i < kCheckpointsBeforeLessLead; ++i)
    EXPECT_EQ(lead(/*in_time=*/true), 2u) << i;
  EXPECT_EQ(lead(/*in_time=*/true), 1u);
}

TEST_F(CheckpointsTest, LeadIsBoundedByTime) {
  Checkpoints checkpoints = Make(0);
  EXPECT_EQ(Next(checkpoints, 0), 0u);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Next(checkpoints, 9), 0u);
  for (uint64_t i = 0; i < 25; ++i) {
    ASSERT_TRUE(checkpoints.Request("/asked").ok());
    ASSERT_NE(Next(checkpoints, 10 + i), 0u);
    checkpoints.OnTooLate(clock_.Now());
  }
  const uint64_t so_far = 600;
  EXPECT_EQ(Next(checkpoints, so_far), so_far + 10 * kMaxCheckpointLeadTime.count() + 1);
}

TEST_F(CheckpointsTest, SecondsPolicyMakesCheckpoints) {
  Checkpoints checkpoints = Make(0, 60);
  clock_.Advance(std::chrono::seconds(59));
  EXPECT_EQ(Next(checkpoints, 7), 0u);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Next(checkpoints, 7), 9u);
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  clock_.Advance(std::chrono::seconds(59));
  EXPECT_EQ(Next(checkpoints, 9), 0u);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Next(checkpoints, 9), 11u);
}

TEST_F(CheckpointsTest, MissedCheckpointByTimeIsMadeSoon) {
  Checkpoints checkpoints = Make(0, 60);
  clock_.Advance(std::chrono::seconds(60));
  EXPECT_EQ(Next(checkpoints, 7), 9u);
  checkpoints.OnMoved(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 20), 0u) << "partitions may still move";
  clock_.Advance(kMissedCheckpointPause);
  EXPECT_EQ(Next(checkpoints, 20), 22u);
}

TEST_F(CheckpointsTest, RequestsForOneFolderShareACheckpoint) {
  Checkpoints checkpoints = Make(0);
  EXPECT_EQ(Next(checkpoints, 7), 0u);
  ASSERT_TRUE(checkpoints.Request("/a").ok());
  ASSERT_TRUE(checkpoints.Request("/b").ok());
  ASSERT_TRUE(checkpoints.Request("/a").ok());
  EXPECT_EQ(Next(checkpoints, 7), 9u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/a");
  EXPECT_EQ(checkpoints.in_progress()->keep, 0u) << "other folders keep all checkpoints";
  ASSERT_TRUE(checkpoints.Request("/a").ok());
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/a/x", 5);
  EXPECT_EQ(Next(checkpoints, 7), 10u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/b");
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/b/x", 5);
  EXPECT_EQ(Next(checkpoints, 20), 0u);
}

TEST_F(CheckpointsTest, RequestedFoldersAreBounded) {
  Checkpoints checkpoints = Make(0);
  for (size_t i = 0; i < kMaxWantedFolders; ++i)
    ASSERT_TRUE(checkpoints.Request(absl::StrCat("/", i)).ok());
  EXPECT_EQ(checkpoints.Request("/one_more").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(checkpoints.Request("/7").ok()) << "it is requested already";
  checkpoints.Withdraw("/0");
  EXPECT_TRUE(checkpoints.Request("/one_more").ok());
  EXPECT_EQ(Next(checkpoints, 7), 9u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/1");
  ASSERT_TRUE(checkpoints.Request("/again").ok());
  EXPECT_FALSE(checkpoints.Request("/too_many").ok());
  // A late checkpoint is requested again beyond the limit, but only for a waiting caller.
  checkpoints.OnTooLate(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 9), 12u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/1");
  checkpoints.Withdraw("/1");
  checkpoints.OnTooLate(clock_.Now());
  EXPECT_NE(Next(checkpoints, 12), 0u);
  EXPECT_EQ(checkpoints.in_progress()->dir, "/2");
}

TEST_F(CheckpointsTest, FailureTextIsValid) {
  Checkpoints checkpoints = Make(10);
  for (size_t i = 0; i < 4; ++i) {
    Next(checkpoints, 5 + 10 * i);
    std::string words(i, 'x');
    while (words.size() < 2000) words += "\xe2\x82\xac";
    checkpoints.OnFailed(absl::PermissionDeniedError(words));
    CheckpointStatus copy;
    EXPECT_TRUE(copy.ParseFromString(checkpoints.Status().SerializeAsString())) << i;
    EXPECT_LE(copy.last_failure().size(), 512u);
  }
}

TEST_F(CheckpointsTest, NothingIsCutAfterTheLastStep) {
  Checkpoints checkpoints = Make(10);
  EXPECT_EQ(Next(checkpoints, 97, 99), 0u);
  ASSERT_TRUE(checkpoints.Request("/asked").ok());
  EXPECT_EQ(Next(checkpoints, 98, 99), 99u) << "the last step may be cut";
  checkpoints.OnTooLate(clock_.Now());
  EXPECT_EQ(Next(checkpoints, 99, 99), 0u);
}

TEST_F(CheckpointsTest, LastStepIsLeftToTheFinalCheckpoint) {
  Checkpoints steps = Make(10);
  EXPECT_EQ(Next(steps, 95, 100), 0u);
  EXPECT_EQ(Next(steps, 95, 101), 100u);
  Checkpoints seconds = Make(0, 60);
  clock_.Advance(std::chrono::seconds(60));
  EXPECT_EQ(Next(seconds, 98, 99), 0u);
  EXPECT_EQ(Next(seconds, 96, 99), 98u);
}

// Early stopping restores the best parameters.
TEST_F(CheckpointsTest, LastStepIsCutIfTheEndRestoresTheBest) {
  Checkpoints checkpoints(Policy(10, 0), clock_.Now(), 1, /*end_is_as_trained=*/false);
  EXPECT_EQ(Next(checkpoints, 95, 100), 100u);
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  EXPECT_EQ(Next(checkpoints, 100, 105), 0u) << "110 is after the end";
}

TEST_F(CheckpointsTest, FinalCheckpointReplacesTheOneInProgress) {
  Checkpoints checkpoints = Make(10);
  ASSERT_EQ(Next(checkpoints, 5), 10u);
  const Checkpoints::Order before = *checkpoints.in_progress();
  const Checkpoints::Order end = checkpoints.BeginEnd(10);
  EXPECT_EQ(end.dir, "/own");
  EXPECT_EQ(end.keep, 3u);
  EXPECT_TRUE(checkpoints.IsInProgress(end));
  EXPECT_FALSE(checkpoints.IsInProgress(before)) << "it has the same step";
  // It was too late to stop it.
  checkpoints.OnCompleted(before, "/own/a", 5);
  EXPECT_TRUE(checkpoints.IsInProgress(end));
  EXPECT_FALSE(checkpoints.end_is_decided());
  checkpoints.OnCompleted(end, "/own/a-end", 6);
  EXPECT_TRUE(checkpoints.end_is_decided());
  EXPECT_EQ(checkpoints.Status().completed(), 2u);
  EXPECT_EQ(checkpoints.Status().end_folder(), "/own/a-end");
  Checkpoints next = Make(10);
  next.Restore(checkpoints.Status());
  EXPECT_TRUE(next.end_is_decided());
}

TEST_F(CheckpointsTest, FailedFinalCheckpointSaysWhy) {
  Checkpoints checkpoints = Make(10);
  checkpoints.BeginEnd(7);
  checkpoints.OnEndFailed(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(checkpoints.end_is_decided());
  EXPECT_FALSE(checkpoints.in_progress().has_value());
  EXPECT_NE(checkpoints.Status().end_failure().find("the disk is full"), std::string::npos);
  EXPECT_EQ(checkpoints.Status().end_folder(), "");
}

TEST_F(CheckpointsTest, FolderIsTheJobsOrAbsolute) {
  Checkpoints own = Make(0);
  EXPECT_EQ(own.DirOf("").value(), "/own");
  EXPECT_EQ(own.DirOf("/other").value(), "/other");
  EXPECT_EQ(own.DirOf("other").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(own.DirOf("/a\nb").status().code(), absl::StatusCode::kInvalidArgument);
  const Checkpoints none(CheckpointPolicy(), clock_.Now());
  EXPECT_EQ(none.DirOf("").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointsTest, StatusSurvivesARestart) {
  Checkpoints checkpoints = Make(10);
  Next(checkpoints, 5);
  checkpoints.OnCompleted(*checkpoints.in_progress(), "/own/a", 5);
  Next(checkpoints, 15);
  checkpoints.OnFailed(absl::ResourceExhaustedError("the disk is full"));
  Next(checkpoints, 25);
  EXPECT_EQ(checkpoints.Status().in_progress_step(), 30u);
  Checkpoints next = Make(10);
  next.Restore(checkpoints.Status());
  const CheckpointStatus status = next.Status();
  EXPECT_EQ(status.completed(), 1u);
  EXPECT_EQ(status.last_step(), 10u);
  EXPECT_EQ(status.last_folder(), "/own/a");
  EXPECT_EQ(status.failed(), 1u);
  EXPECT_NE(status.last_failure().find("the disk is full"), std::string::npos);
  EXPECT_EQ(status.in_progress_step(), 0u);
  EXPECT_EQ(Next(next, 28), 31u) << "30 was asked for, and may not exist";
  next.OnCompleted(*next.in_progress(), "/own/b", 5);
  EXPECT_EQ(Next(next, 33), 40u);
}

TEST_F(CheckpointsTest, MissedPeriodicCheckpointSurvivesRestarts) {
  // Cuts are made only at multiples of 300, so the first is at 1200.
  const auto make = [&] { return Checkpoints(Policy(1000, 0), clock_.Now(), 300); };
  Checkpoints checkpoints = make();
  ASSERT_EQ(Next(checkpoints, 1195), 1200u);
  Checkpoints second = make();
  second.Restore(checkpoints.Status());
  EXPECT_EQ(Next(second, 1250), 1500u);
  second.OnMoved(clock_.Now());
  Checkpoints third = make();
  third.Restore(second.Status());
  EXPECT_EQ(Next(third, 1510), 1800u);
  // A caller that waits for it too may not come back.
  ASSERT_TRUE(third.Request("/own").ok());
  Checkpoints restarted = make();
  restarted.Restore(third.Status());
  EXPECT_EQ(Next(restarted, 1810), 2100u);
  third.OnCompleted(*third.in_progress(), "/own/a", 5);
  Checkpoints fourth = make();
  fourth.Restore(third.Status());
  EXPECT_EQ(Next(fourth, 1810), 0u);
}

// A restarted scheduler first knows the step that its predecessor has saved.
TEST_F(CheckpointsTest, StaleStepAfterARestartKeepsTheLead) {
  Checkpoints checkpoints = Make(1000);
  ASSERT_EQ(Next(checkpoints, 995), 1000u);
  Checkpoints next = Make(1000);
  next.Restore(checkpoints.Status());
  for (int tick = 0; tick < 12; ++tick) {
    if (Next(next, 995) != 0) next.OnTooLate(clock_.Now());
  }
  clock_.Advance(kMissedCheckpointPause);
  EXPECT_EQ(Next(next, 4500), 4503u);
}

TEST_F(CheckpointsTest, RequestedCheckpointIsNotMissedAfterARestart) {
  Checkpoints checkpoints = Make(10);
  ASSERT_TRUE(checkpoints.Request("/asked").ok());
  Next(checkpoints, 2);
  ASSERT_NE(checkpoints.Status().in_progress_step() % 10, 0u);
  Checkpoints next = Make(10);
  next.Restore(checkpoints.Status());
  EXPECT_EQ(Next(next, 4), 10u);
}

}  // namespace
}  // namespace pawl
