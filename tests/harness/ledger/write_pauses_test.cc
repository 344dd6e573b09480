#include "tests/harness/ledger/write_pauses.h"

#include <chrono>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

MonotonicTime At(int ms) { return MonotonicTime(milliseconds(ms)); }

std::vector<MonotonicTime> Times(const std::vector<int>& ms) {
  std::vector<MonotonicTime> times;
  for (const int each : ms) times.push_back(At(each));
  return times;
}

MonotonicDuration PauseOf(const std::vector<int>& acknowledged, int from, int until, int end) {
  const auto pauses = LongestPauses({{7, Times(acknowledged)}}, {At(from), At(until)}, At(end));
  return pauses.count(7) == 0 ? milliseconds(-1) : pauses.at(7);
}

TEST(WritePausesTest, PauseAroundTheSpanCounts) {
  EXPECT_EQ(PauseOf({0, 10, 20, 520, 530}, 15, 600, 530), milliseconds(500));
  // The span starts inside the pause.
  EXPECT_EQ(PauseOf({0, 10, 20, 520, 530}, 300, 310, 530), milliseconds(500));
}

TEST(WritePausesTest, PausesOutsideTheSpanDoNotCount) {
  EXPECT_EQ(PauseOf({0, 500, 510, 520, 1500}, 501, 515, 1500), milliseconds(10));
}

TEST(WritePausesTest, SilentWorkerPausesUntilTheEnd) {
  EXPECT_EQ(PauseOf({0, 10}, 5, 100, 3000), milliseconds(2990));
}

TEST(WritePausesTest, WorkerThatStartsLaterHasNoPause) {
  EXPECT_EQ(PauseOf({200, 210}, 5, 100, 300), milliseconds(-1));
  EXPECT_EQ(PauseOf({}, 5, 100, 300), milliseconds(-1));
}

TEST(WritePausesTest, PercentilesUseTheNearestRank) {
  std::vector<MonotonicDuration> pauses;
  for (int ms = 200; ms >= 1; --ms) pauses.emplace_back(milliseconds(ms));
  const PauseSummary summary = SummarizePauses(pauses);
  EXPECT_EQ(summary.count, 200u);
  EXPECT_DOUBLE_EQ(summary.p50_s, 0.100);
  EXPECT_DOUBLE_EQ(summary.p99_s, 0.198);
  EXPECT_DOUBLE_EQ(summary.max_s, 0.200);
  EXPECT_DOUBLE_EQ(SummarizePauses({milliseconds(70)}).p50_s, 0.070);
  EXPECT_EQ(SummarizePauses({}).count, 0u);
}

}  // namespace
}  // namespace pawl
