#include "worker/model/recorded_steps.h"

#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

StepKey KeyOf(size_t samples, uint64_t layout) {
  StepKey key;
  key.samples = samples;
  key.layout = layout;
  return key;
}

TEST(RecordedStepsTest, StepIsFoundByItsWholeKey) {
  const float somewhere[2] = {};
  StepKey key = KeyOf(7, 1);
  key.numerics = somewhere;
  key.labels = somewhere + 1;
  key.gradient_scale = 0.5f;
  key.staying = {somewhere};
  RecordedSteps steps;
  steps.Remember(key);
  EXPECT_NE(steps.Find(key), nullptr);
  std::vector<StepKey> others(6, key);
  others[0].numerics = nullptr;
  others[1].labels = nullptr;
  others[2].samples = 8;
  others[3].gradient_scale = 0.25f;
  others[4].layout = 2;
  others[5].staying = {somewhere + 1};
  for (const StepKey& other : others) EXPECT_EQ(steps.Find(other), nullptr);
}

TEST(RecordedStepsTest, RememberingAgainKeepsTheRecording) {
  RecordedSteps steps;
  steps.Remember(KeyOf(7, 1));
  steps.Find(KeyOf(7, 1))->finished = {3};
  steps.Remember(KeyOf(7, 1));
  EXPECT_EQ(steps.Find(KeyOf(7, 1))->finished, std::vector<size_t>{3});
}

TEST(RecordedStepsTest, StepsOfAnotherLayoutAreDropped) {
  RecordedSteps steps;
  steps.Remember(KeyOf(7, 1));
  steps.Remember(KeyOf(8, 2));
  EXPECT_EQ(steps.Find(KeyOf(7, 1)), nullptr);
  EXPECT_NE(steps.Find(KeyOf(8, 2)), nullptr);
}

TEST(RecordedStepsTest, OldestStepIsDroppedBeyondTheLimit) {
  RecordedSteps steps;
  for (size_t i = 0; i <= RecordedSteps::kMaxSteps; ++i) steps.Remember(KeyOf(i, 1));
  EXPECT_EQ(steps.Find(KeyOf(0, 1)), nullptr);
  EXPECT_NE(steps.Find(KeyOf(1, 1)), nullptr);
}

}  // namespace
}  // namespace pawl
