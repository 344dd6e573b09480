#include "client_lib/base/testing/failpoint_control.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/base/failpoint.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(FailpointTest, UnarmedFailpointsCountHits) {
  ASSERT_TRUE(ArmFailpoints("").ok());
  EXPECT_FALSE(PAWL_FAILPOINT("test.plain"));
  EXPECT_FALSE(PAWL_FAILPOINT("test.plain"));
  EXPECT_EQ(FailpointHits().at("test.plain"), 2u);
}

TEST(FailpointTest, OnlyTheNumberedHitFails) {
  ASSERT_TRUE(ArmFailpoints("test.fail=error@3;test.other=error").ok());
  std::vector<bool> failed;
  for (int hit = 0; hit < 5; ++hit) failed.push_back(PAWL_FAILPOINT("test.fail"));
  EXPECT_EQ(failed, std::vector<bool>({false, false, true, false, false}));
  EXPECT_TRUE(PAWL_FAILPOINT("test.other"));
  EXPECT_TRUE(PAWL_FAILPOINT("test.other"));
}

TEST(FailpointTest, PauseLastsForItsDuration) {
  ASSERT_TRUE(ArmFailpoints("test.pause=pause:30@1").ok());
  const MonotonicTime begin = Clock::Real().Now();
  EXPECT_FALSE(PAWL_FAILPOINT("test.pause"));
  EXPECT_GE(Clock::Real().Now() - begin, std::chrono::milliseconds(30));
}

TEST(FailpointTest, CrashKillsTheProcess) {
  ASSERT_TRUE(ArmFailpoints("test.crash=crash@2").ok());
  EXPECT_FALSE(PAWL_FAILPOINT("test.crash"));
  EXPECT_EXIT(PAWL_FAILPOINT("test.crash"), testing::KilledBySignal(SIGKILL),
              "failpoint test.crash: crash");
}

TEST(FailpointTest, HitsOfAllThreadsAreCounted) {
  ASSERT_TRUE(ArmFailpoints("test.threads=error@400").ok());
  std::vector<std::thread> threads;
  std::vector<int> failures(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&failures, i] {
      for (int hit = 0; hit < 100; ++hit) failures[i] += PAWL_FAILPOINT("test.threads");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures[0] + failures[1] + failures[2] + failures[3], 1);
}

TEST(FailpointTest, InvalidSpecChangesNothing) {
  ASSERT_TRUE(ArmFailpoints("test.kept=error").ok());
  for (const char* spec :
       {"test.a", "=crash", "test.a=explode", "test.a=crash@0", "test.a=crash@x", "test.a=crash@",
        "test.a=pause", "test.a=pause:600001", "test.a=error;test.a=crash"}) {
    EXPECT_EQ(ArmFailpoints(spec).code(), absl::StatusCode::kInvalidArgument) << spec;
  }
  EXPECT_TRUE(PAWL_FAILPOINT("test.kept"));
}

}  // namespace
}  // namespace pawl
