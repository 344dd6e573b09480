#include "server/optimizer/learning_rate.h"

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

TEST(LearningRateTest, WarmUpAndScheduleMultiply) {
  const LearningRate rate = Make(1.0f, "step { every_steps: 2 gamma: 0.5 } warmup_steps: 4");
  EXPECT_FLOAT_EQ(rate.At(0), 0.25f);
  EXPECT_FLOAT_EQ(rate.At(1), 0.5f);
  EXPECT_FLOAT_EQ(rate.At(2), 0.375f);
  EXPECT_FLOAT_EQ(rate.At(3), 0.5f);
}

}  // namespace
}  // namespace pawl
