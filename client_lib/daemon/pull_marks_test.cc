#include "client_lib/daemon/pull_marks.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(PullMarksTest, StepsThatEndBetweenPullAndPushAreCounted) {
  PullMarks marks;
  marks.OnStepEnded();
  marks.OnPull(0, 5);
  marks.OnPull(3, 5);
  EXPECT_EQ(marks.OnPush(3, 5), 0u);
  marks.OnStepEnded();
  marks.OnStepEnded();
  EXPECT_EQ(marks.OnPush(0, 5), 2u);
}

TEST(PullMarksTest, PullAheadIsKeptBesideThePresentStep) {
  PullMarks marks;
  marks.OnPull(0, 5);
  marks.OnStepEnded();
  marks.OnPull(0, 6);
  marks.OnStepEnded();
  EXPECT_EQ(marks.OnPush(0, 5), 2u);
  EXPECT_EQ(marks.OnPush(0, 6), 1u);
}

TEST(PullMarksTest, LatestAnswerCounts) {
  PullMarks marks;
  marks.OnPull(0, 5);
  marks.OnStepEnded();
  marks.OnPull(0, 5);
  EXPECT_EQ(marks.OnPush(0, 5), 0u);
}

TEST(PullMarksTest, EachStepIsToldOnce) {
  PullMarks marks;
  marks.OnPull(0, 5);
  EXPECT_EQ(marks.OnPush(0, 5), 0u);
  EXPECT_EQ(marks.OnPush(0, 5), std::nullopt);
}

TEST(PullMarksTest, UnknownPullsAreNotCounted) {
  PullMarks marks;
  EXPECT_EQ(marks.OnPush(0, 0), std::nullopt);
  marks.OnPull(1, 4);
  EXPECT_EQ(marks.OnPush(1, 6), std::nullopt) << "its place has step 4";
  marks.OnPull(kMeasuredRanks, 0);
  EXPECT_EQ(marks.OnPush(kMeasuredRanks, 0), std::nullopt);
}

}  // namespace
}  // namespace pawl
