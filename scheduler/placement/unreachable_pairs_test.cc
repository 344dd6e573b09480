#include "scheduler/placement/unreachable_pairs.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class UnreachablePairsTest : public testing::Test {
 protected:
  void Note() { unreachable_pairs_.Note(/*primary=*/1, /*follower=*/2, clock_.Now()); }
  bool IsSilent() { return unreachable_pairs_.Current(clock_.Now()).contains({1, 2}); }

  SimulatedClock clock_;
  UnreachablePairs unreachable_pairs_;
};

TEST_F(UnreachablePairsTest, ReportExpiresAndConcernsOnePrimary) {
  EXPECT_FALSE(IsSilent());
  Note();
  EXPECT_TRUE(IsSilent());
  EXPECT_FALSE(unreachable_pairs_.Current(clock_.Now()).contains({2, 1}));
  clock_.Advance(kSilenceRemembered - milliseconds(1));
  EXPECT_TRUE(IsSilent());
  clock_.Advance(milliseconds(1));
  EXPECT_FALSE(IsSilent());
}

TEST_F(UnreachablePairsTest, RepeatedReportLastsTwiceAsLong) {
  Note();
  clock_.Advance(kSilenceRemembered);
  Note();
  clock_.Advance(kSilenceRemembered);
  EXPECT_TRUE(IsSilent());
  clock_.Advance(kSilenceRemembered);
  EXPECT_FALSE(IsSilent());
}

TEST_F(UnreachablePairsTest, ReportBeforeExpiryDoesNotDoubleTheDuration) {
  Note();
  clock_.Advance(kSilenceRemembered / 2);
  Note();
  clock_.Advance(kSilenceRemembered);
  EXPECT_FALSE(IsSilent());
}

TEST_F(UnreachablePairsTest, DurationIsLimitedAndFinallyReset) {
  for (int i = 0; i < 20; ++i) {
    Note();
    while (IsSilent()) clock_.Advance(seconds(1));
  }
  Note();
  clock_.Advance(kMaxSilenceRemembered - seconds(1));
  EXPECT_TRUE(IsSilent());
  clock_.Advance(seconds(1) + kMaxSilenceRemembered);
  EXPECT_FALSE(IsSilent());
  Note();
  clock_.Advance(kSilenceRemembered);
  EXPECT_FALSE(IsSilent());
}

}  // namespace
}  // namespace pawl
