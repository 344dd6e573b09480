// Servers that die, hang or leave while a SYNC job trains with two replicas per partition. The job
// continues and ends with the bits of an undisturbed run.
#include <csignal>

#include "tests/integration/disturbed_training_test.h"

namespace pawl {
namespace {

using FailoverTest = DisturbedTrainingTest;

TEST_F(FailoverTest, OtherServersReplaceAKilledServer) {
  ExpectTheSameBits({}, [&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-1").ok());
    ExpectRepair(cluster);
  });
}

TEST_F(FailoverTest, RestartedServerRejoins) {
  ExpectTheSameBits({}, [&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-0").ok());
    ASSERT_TRUE(cluster.Restart("server-0").ok());
    ASSERT_TRUE(cluster.WaitUntilMember("server-0", kStartTimeout).ok());
    ExpectRepair(cluster);
  });
}

// With as many servers as replicas nothing is copied for that: only roles change.
TEST_F(FailoverTest, RestartedServerGetsItsPrimariesBack) {
  ExpectTheSameBits({.servers = 2}, [&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-0").ok());
    Restart(cluster, "server-0");
    ExpectRepair(cluster);
    const auto even = cluster.WaitFor(
        [](const auto& status) {
          return status.moves().settled() && status.moves().handovers() >= kPartitions / 2;
        },
        kRepairTimeout);
    EXPECT_TRUE(even.ok()) << even.status();
  });
}

TEST_F(FailoverTest, PausedPrimaryIsReplacedAndReturns) {
  ExpectTheSameBits({}, [&](ProcessCluster& cluster) {
    cluster.node("server-2").Signal(SIGSTOP);
    const auto dead = cluster.WaitFor(
        [](const auto& status) {
          for (const NodeStatus& node : status.nodes()) {
            if (node.node() == "server-2") return node.gone();
          }
          return false;
        },
        kStartTimeout);
    cluster.node("server-2").Signal(SIGCONT);
    ASSERT_TRUE(dead.ok()) << dead.status();
    ASSERT_TRUE(cluster.WaitUntilMember("server-2", kStartTimeout).ok());
    ExpectRepair(cluster);
  });
}

TEST_F(FailoverTest, LeavingServerHandsOverFirst) {
  ExpectTheSameBits({}, [&](ProcessCluster& cluster) {
    cluster.node("server-1").Signal(SIGTERM);
    ASSERT_TRUE(cluster.node("server-1").WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
    EXPECT_TRUE(cluster.node("server-1").Succeeded()) << cluster.node("server-1").HowItEnded();
    EXPECT_EQ(cluster.Log("server-1").find("ending with replicas"), std::string::npos);
  });
}

}  // namespace
}  // namespace pawl
