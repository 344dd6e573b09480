#include "deploy/pawlctl/cluster/restart_policy.h"

#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<int64_t> DelaysMs(RestartPolicy& policy, const std::string& process,
                              MonotonicDuration lifetime, int deaths) {
  std::vector<int64_t> delays;
  for (int i = 0; i < deaths; ++i) {
    const auto delay = policy.OnDeath(process, lifetime);
    delays.push_back(delay.has_value() ? std::chrono::duration_cast<milliseconds>(*delay).count()
                                       : -1);
  }
  return delays;
}

TEST(RestartPolicyTest, RestartsAreCountedOverAllProcesses) {
  RestartPolicy policy(3);
  EXPECT_TRUE(policy.OnDeath("server-0", seconds(60)).has_value());
  EXPECT_TRUE(policy.OnDeath("worker-1", seconds(60)).has_value());
  EXPECT_TRUE(policy.OnDeath("server-0", seconds(60)).has_value());
  EXPECT_FALSE(policy.OnDeath("server-0", seconds(60)).has_value());
  EXPECT_FALSE(policy.OnDeath("worker-0", seconds(60)).has_value());
  EXPECT_EQ(policy.restarts(), 3u);
  EXPECT_EQ(policy.restarts_of("server-0"), 2u);
  EXPECT_EQ(policy.restarts_of("worker-1"), 1u);
  EXPECT_EQ(policy.restarts_of("worker-0"), 0u);
}

TEST(RestartPolicyTest, NoRestartsMeansNoDelay) {
  RestartPolicy policy(0);
  EXPECT_FALSE(policy.OnDeath("server-0", seconds(60)).has_value());
}

TEST(RestartPolicyTest, DelayDoublesAfterShortRuns) {
  RestartPolicy policy(100);
  EXPECT_EQ(DelaysMs(policy, "server-0", milliseconds(10), 9),
            (std::vector<int64_t>{100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000}));
}

TEST(RestartPolicyTest, LongRunResetsDelay) {
  RestartPolicy policy(100);
  DelaysMs(policy, "server-0", milliseconds(10), 5);
  EXPECT_EQ(DelaysMs(policy, "server-0", kMinStableRun, 1), (std::vector<int64_t>{100}));
  EXPECT_EQ(DelaysMs(policy, "server-0", milliseconds(10), 2), (std::vector<int64_t>{200, 400}));
}

TEST(RestartPolicyTest, EachProcessHasItsOwnDelay) {
  RestartPolicy policy(100);
  DelaysMs(policy, "server-0", milliseconds(10), 5);
  EXPECT_EQ(DelaysMs(policy, "server-1", milliseconds(10), 1), (std::vector<int64_t>{100}));
}

}  // namespace
}  // namespace pawl
