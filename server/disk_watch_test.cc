#include "server/disk_watch.h"

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

class DiskWatchTest : public testing::Test {
 protected:
  // Advances time by `duration` while the log is in the given state.
  void Pass(MonotonicDuration duration, const absl::Status& room, bool waits, bool writes) {
    for (MonotonicDuration passed{}; passed < duration; passed += milliseconds(50)) {
      clock_.Advance(milliseconds(50));
      durable_ += writes;
      watch_.Note(room, waits, durable_, clock_.Now());
    }
  }
  bool Fails() const { return watch_.Failure(clock_.Now()).has_value(); }

  SimulatedClock clock_;
  DiskWatch watch_;
  uint64_t durable_ = 0;
};

TEST_F(DiskWatchTest, FullDiskIsReportedUntilItStaysGood) {
  const absl::Status full = absl::ResourceExhaustedError("no space left on device");
  Pass(kDiskFailureReportDelay - milliseconds(50), full, false, false);
  EXPECT_FALSE(Fails());
  Pass(milliseconds(200), full, false, false);
  ASSERT_TRUE(Fails());
  EXPECT_EQ(watch_.Failure(clock_.Now())->reason(), "no space left on device");
  EXPECT_GE(watch_.Failure(clock_.Now())->lasts_ms(), 500u);
  Pass(kDiskRecoveryTime - milliseconds(50), absl::OkStatus(), false, false);
  EXPECT_TRUE(Fails());
  Pass(milliseconds(200), absl::OkStatus(), false, false);
  EXPECT_FALSE(Fails());
}

TEST_F(DiskWatchTest, HungWriteIsReported) {
  Pass(milliseconds(1000), absl::OkStatus(), true, true);
  Pass(kDiskHangTimeout - milliseconds(100), absl::OkStatus(), true, false);
  EXPECT_FALSE(Fails());
  Pass(milliseconds(300), absl::OkStatus(), true, false);
  ASSERT_TRUE(Fails());
  EXPECT_EQ(watch_.Failure(clock_.Now())->reason(), "the disk has not answered for 2 s");
}

TEST_F(DiskWatchTest, IdleAndBusyDisksAreHealthy) {
  Pass(milliseconds(60000), absl::OkStatus(), false, false);
  EXPECT_FALSE(Fails());
  Pass(milliseconds(60000), absl::OkStatus(), true, true);
  EXPECT_FALSE(Fails());
}

}  // namespace
}  // namespace pawl
