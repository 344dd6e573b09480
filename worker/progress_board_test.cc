#include "worker/progress_board.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ProgressBoardTest, SumsOverTheRanks) {
  WorkerProgress published;
  ProgressBoard board({0, 5}, 100, [&](const WorkerProgress& progress) { published = progress; });
  EXPECT_EQ(published.steps_total(), 100u);
  board.StepEnded(0, 10, 20.0);
  board.StepEnded(0, 10, 20.0);
  board.StepEnded(1, 7, 14.0);
  EXPECT_EQ(published.steps_min(), 2u);
  EXPECT_EQ(published.steps_max(), 6u);
  EXPECT_EQ(published.samples(), 27u);
  EXPECT_DOUBLE_EQ(published.loss(), 2.0);
  EXPECT_EQ(board.progress().SerializeAsString(), published.SerializeAsString());
}

TEST(ProgressBoardTest, TheLossIsThatOfTheLastSteps) {
  ProgressBoard board({0}, 1000, [](const WorkerProgress&) {});
  for (int i = 0; i < 500; ++i) board.StepEnded(0, 10, 1000.0);
  for (int i = 0; i < 500; ++i) board.StepEnded(0, 10, 10.0);
  EXPECT_NEAR(board.progress().loss(), 1.0, 1e-6);
}

TEST(ProgressBoardTest, AStepWithoutSamplesLeavesTheLoss) {
  ProgressBoard board({0}, 10, [](const WorkerProgress&) {});
  board.StepEnded(0, 10, 5.0);
  board.StepEnded(0, 0, 0.0);
  EXPECT_DOUBLE_EQ(board.progress().loss(), 0.5);
  EXPECT_EQ(board.progress().steps_min(), 2u);
}

}  // namespace
}  // namespace pawl
