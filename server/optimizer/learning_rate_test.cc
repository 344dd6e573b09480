#include "server/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

LearningRate Make(float base, const std::string& text) {
  LearningRateSchedule schedule;
  if (!google::protobuf::TextFormat::ParseFromString(text, &schedule)) ADD_FAILURE() << text;
  return LearningRate(base, schedule);
}

TEST(LearningRateTest, ScheduleMultipliesAnotherBase) {
  LearningRateSchedule schedule;
  schedule.set_warmup_steps(4);
  schedule.mutable_step()->set_every_steps(10);
  schedule.mutable_step()->set_gamma(0.5f);
  const LearningRate rate(3.0f, schedule);
  const LearningRate other(0.75f, schedule);
  for (const uint64_t step : {0, 2, 5, 10, 35}) {
    EXPECT_EQ(rate.At(step, 0.75f), other.At(step)) << step;
    EXPECT_EQ(rate.At(step), rate.At(step, 3.0f)) << step;
  }
  EXPECT_EQ(LearningRate(3.0f, LearningRateSchedule()).At(7, 0.75f), 0.75f);
}

TEST(LearningRateTest, RateWithoutScheduleIsConstant) {
  const LearningRate rate = Make(0.3f, "");
  for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, UINT64_MAX})
    EXPECT_EQ(rate.At(step), 0.3f);
}

TEST(LearningRateTest, WarmUpRisesLinearlyThenEnds) {
  const LearningRate rate = Make(0.4f, "warmup_steps: 4");
  EXPECT_FLOAT_EQ(rate.At(0), 0.1f);
  EXPECT_FLOAT_EQ(rate.At(1), 0.2f);
  EXPECT_FLOAT_EQ(rate.At(2), 0.3f);
  EXPECT_EQ(rate.At(3), 0.4f);
  EXPECT_EQ(rate.At(1000), 0.4f);
  EXPECT_EQ(rate.At(UINT64_MAX), 0.4f);
  EXPECT_EQ(Make(0.4f, "warmup_steps: 1").At(0), 0.4f);
}

TEST(LearningRateTest, StepScheduleFallsByGamma) {
  const LearningRate rate = Make(0.8f, "step { every_steps: 10 gamma: 0.5 }");
  EXPECT_EQ(rate.At(0), 0.8f);
  EXPECT_EQ(rate.At(9), 0.8f);
  EXPECT_EQ(rate.At(10), 0.4f);
  EXPECT_EQ(rate.At(39), 0.1f);
  EXPECT_EQ(rate.At(UINT64_MAX), 0.0f);
}

TEST(LearningRateTest, CosineFallsToTheFloorAndStays) {
  const LearningRate rate = Make(2.0f, "cosine { total_steps: 300 floor: 0.25 }");
  EXPECT_EQ(rate.At(0), 2.0f);
  EXPECT_FLOAT_EQ(rate.At(150), 1.25f);
  EXPECT_EQ(rate.At(300), 0.5f);
  EXPECT_EQ(rate.At(UINT64_MAX), 0.5f);
  for (uint64_t step = 0; step < 300; ++step) {
    const double expected =
        2.0 * (0.25 + 0.75 * (1.0 + std::cos(M_PI * static_cast<double>(step) / 300.0)) / 2.0);
    EXPECT_FLOAT_EQ(rate.At(step), static_cast<float>(expected)) << step;
    EXPECT_LE(rate.At(step + 1), rate.At(step)) << step;
  }
}

TEST(LearningRateTest, PolynomialFallsToTheFloorAndStays) {
  const LearningRate linear = Make(2.0f, "polynomial { total_steps: 200 floor: 0.5 }");
  const LearningRate square = Make(2.0f, "polynomial { total_steps: 200 floor: 0.5 power: 2 }");
  const LearningRate root = Make(2.0f, "polynomial { total_steps: 200 power: 0.5 }");
  for (uint64_t step = 0; step <= 300; ++step) {
    const double left = 1.0 - std::min(static_cast<double>(step), 200.0) / 200.0;
    EXPECT_FLOAT_EQ(linear.At(step), static_cast<float>(2.0 * (0.5 + 0.5 * left))) << step;
    EXPECT_FLOAT_EQ(square.At(step), static_cast<float>(2.0 * (0.5 + 0.5 * left * left))) << step;
    EXPECT_FLOAT_EQ(root.At(step), static_cast<float>(2.0 * std::sqrt(left))) << step;
  }
  EXPECT_EQ(linear.At(UINT64_MAX), 1.0f);
  EXPECT_EQ(root.At(UINT64_MAX), 0.0f);
}

TEST(LearningRateTest, CosineRestartsInGrowingPeriods) {
  const LearningRate rate =
      Make(2.0f, "cosine_restarts { first_period_steps: 10 period_factor: 2 floor: 0.25 }");
  const LearningRate equal = Make(2.0f, "cosine_restarts { first_period_steps: 10 }");
  // Periods of 10, 20 and 40 steps.
  uint64_t step = 0;
  for (const int period : {10, 20, 40}) {
    EXPECT_EQ(rate.At(step), 2.0f) << step;
    for (int c = 0; c < period; ++c, ++step) {
      const double wave = (1.0 + std::cos(M_PI * c / period)) / 2.0;
      EXPECT_FLOAT_EQ(rate.At(step), static_cast<float>(2.0 * (0.25 + 0.75 * wave))) << step;
      const double equal_wave = (1.0 + std::cos(M_PI * static_cast<double>(step % 10) / 10)) / 2.0;
      EXPECT_FLOAT_EQ(equal.At(step), static_cast<float>(2.0 * equal_wave)) << step;
    }
  }
  EXPECT_GE(rate.At(UINT64_MAX), 0.5f);
  EXPECT_LE(Make(1.0f, "cosine_restarts { first_period_steps: 1 period_factor: 4294967295 }")
                .At(UINT64_MAX),
            1.0f);
}

TEST(LearningRateTest, WarmUpAndScheduleMultiply) {
  const LearningRate rate = Make(1.0f, "step { every_steps: 2 gamma: 0.5 } warmup_steps: 4");
  EXPECT_FLOAT_EQ(rate.At(0), 0.25f);
  EXPECT_FLOAT_EQ(rate.At(1), 0.5f);
  EXPECT_FLOAT_EQ(rate.At(2), 0.375f);
  EXPECT_FLOAT_EQ(rate.At(3), 0.5f);
}

}  // namespace
}  // namespace pawl
