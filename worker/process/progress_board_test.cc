#include "worker/process/progress_board.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ProgressBoardTest, SumsOverRanks) {
  WorkerProgress published;
  ProgressBoard board(100, [&](const WorkerProgress& progress) { published = progress; });
  EXPECT_EQ(published.steps_total(), 100u);
  board.AddRank(0, 0, 0);
  board.AddRank(1, 5, 35);
  board.OnStepEnded(0, 10, 20.0);
  board.OnStepEnded(0, 10, 20.0);
  board.OnStepEnded(1, 7, 14.0);
  EXPECT_EQ(published.steps_min(), 2u);
  EXPECT_EQ(published.steps_max(), 6u);
  EXPECT_EQ(published.samples(), 27u);
  EXPECT_DOUBLE_EQ(published.loss(), 2.0);
  EXPECT_EQ(board.progress().SerializeAsString(), published.SerializeAsString());
}

TEST(ProgressBoardTest, RankCountsIncludeEarlierHosts) {
  ProgressBoard board(100, [](const WorkerProgress&) {});
  board.AddRank(3, 5, 50);
  board.OnStepEnded(3, 10, 1.0);
  board.AddRank(2, 9, 90);
  board.RemoveRank(3);
  const WorkerProgress progress = board.progress();
  ASSERT_EQ(progress.ranks_size(), 2);
  EXPECT_EQ(progress.ranks(0).rank(), 2u);
  EXPECT_EQ(progress.ranks(1).steps(), 6u);
  EXPECT_EQ(progress.ranks(1).samples(), 60u);
  EXPECT_EQ(progress.steps_min(), 9u) << "over hosted ranks only";
  EXPECT_EQ(progress.samples(), 10u) << "in this process only";
  board.AddRank(3, 8, 80);
  EXPECT_EQ(board.progress().steps_min(), 8u);
}

TEST(ProgressBoardTest, LossIsOfTheLastSteps) {
  ProgressBoard board(1000, [](const WorkerProgress&) {});
  board.AddRank(0, 0, 0);
  for (int i = 0; i < 500; ++i) board.OnStepEnded(0, 10, 1000.0);
  for (int i = 0; i < 500; ++i) board.OnStepEnded(0, 10, 10.0);
  EXPECT_NEAR(board.progress().loss(), 1.0, 1e-6);
}

TEST(ProgressBoardTest, StepWithoutSamplesLeavesTheLoss) {
  ProgressBoard board(10, [](const WorkerProgress&) {});
  board.AddRank(0, 0, 0);
  board.OnStepEnded(0, 10, 5.0);
  board.OnStepEnded(0, 0, 0.0);
  EXPECT_DOUBLE_EQ(board.progress().loss(), 0.5);
  EXPECT_EQ(board.progress().steps_min(), 2u);
}

}  // namespace
}  // namespace pawl
