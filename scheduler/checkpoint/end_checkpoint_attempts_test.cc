#include "scheduler/checkpoint/end_checkpoint_attempts.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class EndCheckpointAttemptsTest : public testing::Test {
 protected:
  EndCheckpointAttemptsTest() { attempts_.Begin(kEndCheckpointTimeout, clock_.Now()); }

  bool FailsWith(const absl::Status& error) { return attempts_.OnFailed(error, clock_.Now()); }
  bool Next() { return attempts_.StartNext(clock_.Now()); }

  SimulatedClock clock_;
  EndCheckpointAttempts attempts_;
};

TEST_F(EndCheckpointAttemptsTest, AttemptsDoNotOverlap) {
  clock_.Advance(seconds(100));
  EXPECT_FALSE(Next());
}

TEST_F(EndCheckpointAttemptsTest, FailedAttemptIsRepeatedAfterAPause) {
  FailsWith(absl::AbortedError("a partition has moved"));
  clock_.Advance(kEndCheckpointPause - milliseconds(1));
  EXPECT_FALSE(Next());
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Next());
  EXPECT_FALSE(Next());
}

TEST_F(EndCheckpointAttemptsTest, PauseIsLongerAfterAnError) {
  FailsWith(absl::InternalError("input/output error"));
  clock_.Advance(kEndCheckpointErrorPause - milliseconds(1));
  EXPECT_FALSE(Next());
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(Next());
}

TEST_F(EndCheckpointAttemptsTest, OperatorErrorIsNotRetried) {
  EXPECT_FALSE(EndCheckpointAttempts::IsRetryable(absl::PermissionDeniedError("read-only")));
  EXPECT_FALSE(EndCheckpointAttempts::IsRetryable(absl::NotFoundError("no such folder")));
  EXPECT_TRUE(EndCheckpointAttempts::IsRetryable(absl::ResourceExhaustedError("the disk is full")));
  EXPECT_TRUE(EndCheckpointAttempts::IsRetryable(absl::DataLossError("input/output error")));
}

TEST_F(EndCheckpointAttemptsTest, RepeatedErrorIsReportedOnce) {
  EXPECT_TRUE(FailsWith(absl::InternalError("a")));
  EXPECT_FALSE(FailsWith(absl::InternalError("a")));
  EXPECT_TRUE(FailsWith(absl::InternalError("b")));
}

TEST_F(EndCheckpointAttemptsTest, TimeoutCoversAllAttemptsAndNamesTheLastError) {
  clock_.Advance(kEndCheckpointTimeout);
  EXPECT_TRUE(attempts_.CheckTime(clock_.Now()).ok());
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(attempts_.CheckTime(clock_.Now()),
            absl::DeadlineExceededError("it was not complete after 1800 s; it may still complete"));
  FailsWith(absl::InternalError("stale file handle"));
  EXPECT_EQ(attempts_.CheckTime(clock_.Now()),
            absl::DeadlineExceededError("it was not complete after 1800 s; it may still complete; "
                                        "the last attempt: stale file handle"));
}

}  // namespace
}  // namespace pawl
