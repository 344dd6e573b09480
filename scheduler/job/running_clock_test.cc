#include "scheduler/job/running_clock.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RunningClockTest, TimeFollowsAClockThatIsReadOften) {
  SimulatedClock clock;
  RunningClock running(clock, milliseconds(500));
  const MonotonicTime begin = running.Now();
  for (int i = 0; i < 10; ++i) {
    clock.Advance(milliseconds(500));
    EXPECT_EQ(running.Peek(), begin + (i + 1) * milliseconds(500));
    EXPECT_EQ(running.Now(), begin + (i + 1) * milliseconds(500));
  }
  EXPECT_EQ(running.TakePause(), MonotonicDuration::zero());
}

TEST(RunningClockTest, TimeStopsInAPauseThatIsReportedOnce) {
  SimulatedClock clock;
  RunningClock running(clock, milliseconds(500));
  clock.Advance(milliseconds(100));
  const MonotonicTime before = running.Now();
  clock.Advance(seconds(30));
  EXPECT_EQ(running.Peek(), before);
  EXPECT_EQ(running.Now(), before);
  EXPECT_EQ(running.TakePause(), seconds(30));
  EXPECT_EQ(running.TakePause(), MonotonicDuration::zero());
  clock.Advance(milliseconds(100));
  EXPECT_EQ(running.Peek(), before + milliseconds(100));
  EXPECT_EQ(running.Now(), before + milliseconds(100));
}

}  // namespace
}  // namespace pawl
