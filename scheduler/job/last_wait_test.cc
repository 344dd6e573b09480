#include "scheduler/job/last_wait.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

class LastWaitTest : public testing::Test {
 protected:
  bool IsOverAfter(MonotonicDuration duration, bool writes_report) {
    clock_.Advance(duration);
    return wait_.IsOver(clock_.Now(), writes_report);
  }

  SimulatedClock clock_;
  LastWait wait_{clock_.Now()};
};

TEST_F(LastWaitTest, AStateThatCannotBeSavedIsNotWaitedForLong) {
  EXPECT_FALSE(IsOverAfter(kLastSaveTimeout, false));
  EXPECT_TRUE(IsOverAfter(seconds(1), false));
}

TEST_F(LastWaitTest, AResultThatIsBeingWrittenIsWaitedForLonger) {
  EXPECT_FALSE(IsOverAfter(kLastSaveTimeout + seconds(1), true));
  EXPECT_FALSE(IsOverAfter(kLastReportTimeout - kLastSaveTimeout - seconds(1), true));
  EXPECT_TRUE(IsOverAfter(seconds(1), true));
}

TEST_F(LastWaitTest, OnceTheResultIsWrittenThereIsTimeToSaveThatTheJobIsOver) {
  EXPECT_FALSE(IsOverAfter(kLastReportTimeout, true));
  EXPECT_FALSE(IsOverAfter(kLastSaveTimeout, false));
  EXPECT_TRUE(IsOverAfter(seconds(1), false));
}

}  // namespace
}  // namespace pawl
