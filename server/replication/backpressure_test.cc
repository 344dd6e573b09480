#include "server/replication/backpressure.h"

#include <chrono>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

constexpr double kMiB = 1 << 20;
constexpr double kNoLimit = 1e12;

// Pieces of 1 MiB that are answered one after another.
class Transfer {
 public:
  explicit Transfer(double most = kNoLimit) : pace_(most) {}

  double Answer(MonotonicDuration took, int pieces = 1) {
    for (; pieces > 0; --pieces) {
      const MonotonicTime sent = now_;
      now_ += took;
      pace_.OnPiece(1 << 20, sent, now_);
    }
    return pace_.bytes_per_s();
  }
  // Several pieces that were in flight together.
  double AnswerTogether(MonotonicDuration took, int pieces) {
    const MonotonicTime sent = now_;
    now_ += took;
    for (; pieces > 0; --pieces) pace_.OnPiece(1 << 20, sent, now_);
    return pace_.bytes_per_s();
  }
  double AnswerReplication(MonotonicDuration took) {
    now_ += std::chrono::seconds(1);
    pace_.OnReplication(took, now_);
    return pace_.bytes_per_s();
  }

 private:
  RepairPace pace_;
  MonotonicTime now_ = MonotonicTime(std::chrono::hours(1));
};

TEST(RepairPaceTest, RateGrowsWhileAnswersComeQuickly) {
  Transfer transfer;
  const double first = transfer.Answer(milliseconds(5));
  const double later = transfer.Answer(milliseconds(5), 100);
  EXPECT_GT(first, 64 * kMiB);
  EXPECT_NEAR(later - first, 600 * kMiB, kMiB) << "six times the bytes sent";
}

TEST(RepairPaceTest, RateFallsOnceForPiecesThatQueueTogether) {
  Transfer transfer;
  const double before = transfer.Answer(milliseconds(5), 50);
  // Within four times the quickest answer and 20 ms.
  EXPECT_GT(transfer.Answer(milliseconds(35)), before);
  const double full = transfer.Answer(milliseconds(5));
  EXPECT_NEAR(transfer.AnswerTogether(milliseconds(200), 10), 0.7 * full, 1);
  // From now on it grows more slowly.
  const double slowed = transfer.Answer(milliseconds(5));
  EXPECT_NEAR(slowed - 0.7 * full, kMiB, 1);
}

TEST(RepairPaceTest, PushesThatWaitSlowTheTransfer) {
  Transfer transfer;
  const double before = transfer.Answer(milliseconds(5), 50);
  EXPECT_EQ(transfer.AnswerReplication(milliseconds(100)), before);
  EXPECT_NEAR(transfer.AnswerReplication(milliseconds(101)), 0.7 * before, 1);
}

TEST(RepairPaceTest, RateStaysWithinItsLimits) {
  Transfer limited(10 * kMiB);
  EXPECT_EQ(limited.Answer(milliseconds(5), 100), 10 * kMiB);
  Transfer slow;
  slow.Answer(milliseconds(5));
  EXPECT_EQ(slow.Answer(milliseconds(500), 100), 4 * kMiB);
  Transfer both(kMiB);
  both.Answer(milliseconds(5));
  EXPECT_EQ(both.Answer(milliseconds(500), 100), kMiB) << "the limit of the flag counts";
}

TEST(PushBrakeTest, PushesAreSpacedByTheirBytes) {
  PushBrake brake;
  const MonotonicTime now(std::chrono::hours(1));
  // 50 ms each.
  EXPECT_EQ(brake.Take(50'000, 1e6, now), milliseconds(0));
  EXPECT_EQ(brake.Take(50'000, 1e6, now), milliseconds(50));
  EXPECT_EQ(brake.Take(50'000, 1e6, now + milliseconds(100)), milliseconds(0));
  // A large push occupies the partition for 80 ms at most.
  EXPECT_EQ(brake.Take(1 << 30, 1e6, now + milliseconds(200)), milliseconds(0));
  EXPECT_EQ(brake.Take(1, 1e6, now + milliseconds(200)), milliseconds(80));
}

TEST(PushBrakeTest, PushThatWouldWaitTooLongGetsNoTurn) {
  PushBrake brake;
  const MonotonicTime now(std::chrono::hours(1));
  int taken = 0;
  while (brake.Take(50'000, 1e6, now).has_value()) ++taken;
  EXPECT_EQ(taken, 11) << "after 0, 50, ..., 500 ms";
  EXPECT_EQ(brake.Take(50'000, 1e6, now + milliseconds(50)), milliseconds(500));
}

TEST(RecentRateTest, OlderIntervalsCountLess) {
  RecentRate rate(/*least_seconds=*/0.1, /*weight=*/0.25);
  const MonotonicTime now(std::chrono::hours(1));
  rate.Sample(100, now);
  rate.Sample(1100, now + milliseconds(1000));
  EXPECT_DOUBLE_EQ(*rate.bytes_per_s(), 1000);
  rate.Sample(1500, now + milliseconds(1050));
  EXPECT_DOUBLE_EQ(*rate.bytes_per_s(), 1000) << "too short an interval";
  rate.Sample(6100, now + milliseconds(2000));
  EXPECT_DOUBLE_EQ(*rate.bytes_per_s(), 2000);
}

TEST(DrainRateTest, RateIsTheMeanOfRecentIntervals) {
  DrainRate drain;
  const MonotonicTime now(std::chrono::hours(1));
  drain.OnAppended(1000);
  drain.Sample(1000, now);
  EXPECT_FALSE(drain.bytes_per_s().has_value());
  drain.Sample(500, now + milliseconds(10));
  EXPECT_FALSE(drain.bytes_per_s().has_value()) << "too short an interval";
  drain.OnAppended(1000);
  drain.Sample(1500, now + milliseconds(100));
  EXPECT_DOUBLE_EQ(*drain.bytes_per_s(), 5000);
  drain.Sample(500, now + milliseconds(200));
  EXPECT_DOUBLE_EQ(*drain.bytes_per_s(), 7500);
}

}  // namespace
}  // namespace pawl
