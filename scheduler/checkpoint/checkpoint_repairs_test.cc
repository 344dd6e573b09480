#include "scheduler/checkpoint/checkpoint_repairs.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(CheckpointRepairsTest, OneCheckpointReplacesAllEarlierDamage) {
  SimulatedClock clock;
  CheckpointRepairs repairs;
  EXPECT_FALSE(repairs.IsDue(clock.Now()));
  repairs.OnDamaged(10, false);
  repairs.OnDamaged(10, false);
  repairs.OnDamaged(5, false);
  EXPECT_TRUE(repairs.IsDue(clock.Now()));
  EXPECT_EQ(repairs.counts().replaced, 0u);
  repairs.OnCompleted(11, false);
  EXPECT_FALSE(repairs.IsDue(clock.Now()));
  EXPECT_EQ(repairs.counts().damaged, 3u);
  EXPECT_EQ(repairs.counts().replaced, 3u);
  repairs.OnDamaged(11, false);
  EXPECT_TRUE(repairs.IsDue(clock.Now()));
  EXPECT_EQ(repairs.counts().replaced, 3u);
}

TEST(CheckpointRepairsTest, DamagedCheckpointDoesNotReplaceItself) {
  SimulatedClock clock;
  CheckpointRepairs repairs;
  // The damage is found before the completion is known.
  repairs.OnDamaged(10, false);
  repairs.OnCompleted(10, false);
  EXPECT_TRUE(repairs.IsDue(clock.Now()));
  repairs.OnCompleted(10, true);
  EXPECT_FALSE(repairs.IsDue(clock.Now())) << "the final checkpoint is later";
}

TEST(CheckpointRepairsTest, PauseAfterFailuresGrowsUntilOneSucceeds) {
  SimulatedClock clock;
  CheckpointRepairs repairs;
  repairs.OnFailed(clock.Now());
  repairs.OnDamaged(10, false);
  EXPECT_TRUE(repairs.IsDue(clock.Now())) << "the earlier failure does not matter";
  for (const MonotonicDuration pause : {kFirstRepairPause, 2 * kFirstRepairPause}) {
    repairs.OnFailed(clock.Now());
    clock.Advance(pause - std::chrono::milliseconds(1));
    EXPECT_FALSE(repairs.IsDue(clock.Now()));
    clock.Advance(std::chrono::milliseconds(1));
    EXPECT_TRUE(repairs.IsDue(clock.Now()));
  }
  for (int i = 0; i < 100; ++i) repairs.OnFailed(clock.Now());
  EXPECT_FALSE(repairs.IsDue(clock.Now() + kMaxRepairPause - std::chrono::milliseconds(1)));
  EXPECT_TRUE(repairs.IsDue(clock.Now() + kMaxRepairPause));
  repairs.OnCompleted(11, false);
  repairs.OnDamaged(11, false);
  EXPECT_TRUE(repairs.IsDue(clock.Now()));
  repairs.OnFailed(clock.Now());
  EXPECT_TRUE(repairs.IsDue(clock.Now() + kFirstRepairPause))
      << "the pauses start again with the first";
}

}  // namespace
}  // namespace pawl
