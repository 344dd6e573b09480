#include "scheduler/process/end_deadline.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

class EndDeadlineTest : public testing::Test {
 protected:
  bool HasPassedAfter(MonotonicDuration duration, bool writing_report) {
    clock_.Advance(duration);
    return deadline_.HasPassed(clock_.Now(), writing_report);
  }

  SimulatedClock clock_;
  EndDeadline deadline_{clock_.Now()};
};

TEST_F(EndDeadlineTest, UnsavedStateIsNotWaitedForLong) {
  EXPECT_FALSE(HasPassedAfter(kLastSaveTimeout, false));
  EXPECT_TRUE(HasPassedAfter(seconds(1), false));
}

TEST_F(EndDeadlineTest, ReportBeingWrittenIsWaitedForLonger) {
  EXPECT_FALSE(HasPassedAfter(kLastSaveTimeout + seconds(1), true));
  EXPECT_FALSE(HasPassedAfter(kLastReportTimeout - kLastSaveTimeout - seconds(1), true));
  EXPECT_TRUE(HasPassedAfter(seconds(1), true));
}

TEST_F(EndDeadlineTest, SavingAfterTheReportGetsItsOwnTimeout) {
  EXPECT_FALSE(HasPassedAfter(kLastReportTimeout, true));
  EXPECT_FALSE(HasPassedAfter(kLastSaveTimeout, false));
  EXPECT_TRUE(HasPassedAfter(seconds(1), false));
}

}  // namespace
}  // namespace pawl
