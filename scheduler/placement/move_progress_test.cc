#include "scheduler/placement/move_progress.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

TEST(MoveProgressTest, TimeLeftFollowsTheSpeedSinceTheFirstMove) {
  SimulatedClock clock;
  MoveProgress progress;
  progress.OnCopied(1000);
  clock.Advance(seconds(100));
  progress.SetRemaining(10, clock.Now());
  clock.Advance(seconds(8));
  for (int i = 0; i < 4; ++i) progress.OnCopied(500);
  MovesStatus status;
  status.set_replicas_left(6);
  progress.Fill(clock.Now(), status);
  EXPECT_DOUBLE_EQ(status.seconds_left(), 12);
  EXPECT_EQ(status.replicas_moved(), 5u);
  EXPECT_EQ(status.bytes_moved(), 3000u);
  progress.SetRemaining(0, clock.Now());
  MovesStatus after;
  progress.Fill(clock.Now(), after);
  EXPECT_EQ(after.seconds_left(), 0);
}

TEST(MoveProgressTest, StatusHasQuantilesOfPauses) {
  MoveProgress progress;
  for (uint32_t pause = 1; pause <= 200; ++pause) progress.OnPaused(pause);
  MovesStatus status;
  progress.Fill({}, status);
  EXPECT_EQ(status.handovers(), 200u);
  EXPECT_EQ(status.pause_ms_p50(), 101u);
  EXPECT_EQ(status.pause_ms_p99(), 199u);
  EXPECT_EQ(status.pause_ms_max(), 200u);
}

TEST(MoveProgressTest, SumsSurviveARestart) {
  MoveProgress progress;
  progress.OnCopied(700);
  MovesStatus stored;
  progress.Fill({}, stored);
  MoveProgress restored;
  restored.Restore(stored);
  restored.OnCopied(300);
  MovesStatus status;
  restored.Fill({}, status);
  EXPECT_EQ(status.bytes_moved(), 1000u);
}

}  // namespace
}  // namespace pawl
