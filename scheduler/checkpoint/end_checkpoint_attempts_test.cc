#include "scheduler/checkpoint/end_checkpoint_attempts.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class EndCheckpointAttemptsTest : public testing::Test {
 protected:
  EndCheckpointAttemptsTest() { attempts_.Begin(clock_.Now()); }

  bool FailsWith(const absl::Status& error) { return attempts_.HasFailed(error, clock_.Now()); }
  bool Next() { return attempts_.TakeNext(clock_.Now()); }

  SimulatedClock clock_;
  EndCheckpointAttempts attempts_;
};

TEST_F(EndCheckpointAttemptsTest, ThereIsNoOtherWhileOneIsUnderWay) {
  clock_.Advance(seconds(100));
  EXPECT_FALSE(Next());
}

TEST_F(EndCheckpointAttemptsTest, AfterAFailureThereIsOneAndAPauseBefore) {
  FailsWith(absl::AbortedError("a partition has moved"));
  clock_.Advance(kEndCheckpointPause - milliseconds(1));
  EXPECT_FALSE(Next());
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Next());
  EXPECT_FALSE(Next());
}

TEST_F(EndCheckpointAttemptsTest, ThePauseIsLongerAfterAnErrorForAllIsWrittenAgain) {
  FailsWith(absl::InternalError("input/output error"));
  clock_.Advance(kEndCheckpointErrorPause - milliseconds(1));
  EXPECT_FALSE(Next());
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Next());
}

TEST_F(EndCheckpointAttemptsTest, WhatSomebodyHasToSetRightDoesNotPass) {
  EXPECT_FALSE(EndCheckpointAttempts::MayPass(absl::PermissionDeniedError("read-only")));
  EXPECT_FALSE(EndCheckpointAttempts::MayPass(absl::NotFoundError("no such folder")));
  EXPECT_TRUE(EndCheckpointAttempts::MayPass(absl::ResourceExhaustedError("the disk is full")));
  EXPECT_TRUE(EndCheckpointAttempts::MayPass(absl::DataLossError("input/output error")));
}

TEST_F(EndCheckpointAttemptsTest, TheSameErrorIsNewsOnce) {
  EXPECT_TRUE(FailsWith(absl::InternalError("a")));
  EXPECT_FALSE(FailsWith(absl::InternalError("a")));
  EXPECT_TRUE(FailsWith(absl::InternalError("b")));
}

TEST_F(EndCheckpointAttemptsTest, TheTimeIsForAllOfThemAndItsEndNamesTheLastError) {
  clock_.Advance(kEndCheckpointTimeout);
  EXPECT_TRUE(attempts_.CheckTime(clock_.Now()).ok());
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(
      attempts_.CheckTime(clock_.Now()),
      absl::DeadlineExceededError("it was not complete within 1800 s, and may still become so"));
  FailsWith(absl::InternalError("stale file handle"));
  EXPECT_EQ(attempts_.CheckTime(clock_.Now()),
            absl::DeadlineExceededError("it was not complete within 1800 s, and may still become "
                                        "so; the last attempt: stale file handle"));
}

}  // namespace
}  // namespace pawl
