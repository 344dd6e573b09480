#include "worker/train/gradient_scale.h"

#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(GradientScaleTest, SyncDividesByTheSamplesOfTheStep) {
  EXPECT_EQ(GradientScale(SYNC, 4, 4096, 1024), 4.0f / 4096.0f);
  EXPECT_EQ(GradientScale(SYNC, 3, 100, 34), static_cast<float>(3.0 / 100.0));
  EXPECT_EQ(GradientScale(SYNC, 3, 100, 33), GradientScale(SYNC, 3, 100, 34));
}

TEST(GradientScaleTest, OtherModesDivideByTheRanksOwnSamples) {
  EXPECT_EQ(GradientScale(ASYNC, 4, 4096, 1000), 1.0f / 1000.0f);
  EXPECT_EQ(GradientScale(BOUNDED, 4, 4096, 1000), 1.0f / 1000.0f);
}

TEST(LossScaleWatchTest, FrequentRepetitionNamesASufficientScale) {
  LossScaleWatch watch(1024);
  for (uint64_t step = 0; step + 1 < LossScaleWatch::kSteps; ++step) {
    const float scale = step == 50 ? 64 : step % 5 == 0 ? 256 : 1024;
    EXPECT_FALSE(watch.OnStep(scale).has_value()) << step;
  }
  const auto line = watch.OnStep(1024);
  ASSERT_TRUE(line.has_value());
  EXPECT_TRUE(absl::StartsWith(*line, "20 of the last 100 steps")) << *line;
  EXPECT_TRUE(absl::StrContains(*line, "loss_scale: 64 ")) << *line;
}

TEST(LossScaleWatchTest, RareRepetitionIsNotReported) {
  LossScaleWatch watch(1024);
  for (uint64_t step = 0; step < 100 * LossScaleWatch::kSteps; ++step) {
    EXPECT_FALSE(watch.OnStep(step % 12 == 0 ? 256 : 1024).has_value()) << step;
  }
}

TEST(LossScaleWatchTest, LinesBecomeRarer) {
  LossScaleWatch watch(1024);
  std::vector<uint64_t> told;
  for (uint64_t step = 0; step < 2000; ++step) {
    if (watch.OnStep(256).has_value()) told.push_back(step + 1);
  }
  EXPECT_EQ(told, (std::vector<uint64_t>{100, 300, 600, 1100, 2000}));
}

}  // namespace
}  // namespace pawl
