// Processes with the only copy of their state die while a SYNC job trains, and restart with the
// same command. The job continues and ends with the bits of an undisturbed run.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/integration/disturbed_training_test.h"

namespace pawl {
namespace {

using RecoveryTest = DisturbedTrainingTest;

TEST_F(RecoveryTest, ServerRecoversFromItsLog) {
  ExpectTheSameBits({.servers = 2, .replicas = 1, .durability = "LOG"},
                    [](ProcessCluster& cluster) {
                      ASSERT_TRUE(cluster.Kill("server-1").ok());
                      Restart(cluster, "server-1");
                    });
}

TEST_F(RecoveryTest, AllServersRecoverFromTheirLogs) {
  ExpectTheSameBits({.servers = 3, .replicas = 2, .durability = "FSYNC"},
                    [](ProcessCluster& cluster) {
                      for (const char* server : {"server-0", "server-1", "server-2"})
                        cluster.node(server).Signal(SIGKILL);
                      for (const char* server : {"server-0", "server-1", "server-2"})
                        ASSERT_TRUE(cluster.Kill(server).ok());
                      for (const char* server : {"server-2", "server-0", "server-1"})
                        Restart(cluster, server);
                    });
}

TEST_F(RecoveryTest, ServerWithADamagedLogGetsItsDataFromOtherReplicas) {
  ExpectTheSameBits(
      {.servers = 2, .replicas = 2, .durability = "LOG"}, [&](ProcessCluster& cluster) {
        ASSERT_TRUE(cluster.Kill("server-1").ok());
        const absl::Status damaged = cluster.DamageLog("server-1");
        ASSERT_TRUE(damaged.ok()) << damaged;
        Restart(cluster, "server-1");
        ExpectRepair(cluster);
        EXPECT_TRUE(
            std::filesystem::exists(cluster.folder() + "/server-1/damaged/log/0000000001.log"));
        const auto status = cluster.GetStatus();
        ASSERT_TRUE(status.ok()) << status.status();
        EXPECT_EQ(status->counters().files_damaged(), 1u);
      });
}

TEST_F(RecoveryTest, ServerWithADamagedLogWaitsForTheOtherReplica) {
  ExpectTheSameBits(
      {.servers = 2, .replicas = 2, .durability = "LOG"}, [&](ProcessCluster& cluster) {
        for (const char* server : {"server-0", "server-1"}) cluster.node(server).Signal(SIGKILL);
        for (const char* server : {"server-0", "server-1"}) ASSERT_TRUE(cluster.Kill(server).ok());
        ASSERT_TRUE(cluster.DamageLog("server-1").ok());
        ASSERT_TRUE(cluster.Restart("server-1").ok());
        const auto refused = cluster.WaitFor(
            [&](const auto&) {
              return cluster.Log("scheduler").find("waiting for server-0") != std::string::npos;
            },
            kStartTimeout);
        ASSERT_TRUE(refused.ok()) << cluster.Log("scheduler");
        EXPECT_FALSE(std::filesystem::exists(cluster.folder() + "/server-1/damaged"));
        Restart(cluster, "server-0");
        ExpectRepair(cluster);
      });
}

// The scheduler takes the server with the lost disk for alive when the other one has already
// returned.
TEST_F(RecoveryTest, OneDiskOfTwoKilledServersIsEnough) {
  ExpectTheSameBits({.servers = 2, .replicas = 2, .durability = "FSYNC"},
                    [](ProcessCluster& cluster) {
                      for (const char* server : {"server-0", "server-1"})
                        cluster.node(server).Signal(SIGKILL);
                      for (const char* server : {"server-0", "server-1"})
                        ASSERT_TRUE(cluster.Kill(server).ok());
                      std::filesystem::remove_all(cluster.folder() + "/server-1");
                      // Part of the fault: within the lease of the other server.
                      std::this_thread::sleep_for(std::chrono::milliseconds(50));
                      Restart(cluster, "server-0");
                    });
}

// 16-bit gradients are floats in the log and on the backups.
TEST_F(RecoveryTest, SixteenBitGradientsAreRecovered) {
  ExpectTheSameBits({.servers = 2, .replicas = 2, .durability = "LOG", .gradients = "BFLOAT16"},
                    [](ProcessCluster& cluster) {
                      for (const std::string& name : cluster.names())
                        cluster.node(name).Signal(SIGKILL);
                      for (const std::string& name : cluster.names())
                        ASSERT_TRUE(cluster.Kill(name).ok());
                      for (const std::string& name : cluster.names()) Restart(cluster, name);
                    });
}

TEST_F(RecoveryTest, RestartedWorkerTakesOverItsRanks) {
  ExpectTheSameBits({.servers = 2, .replicas = 1}, [](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("worker-0").ok());
    Restart(cluster, "worker-0");
  });
}

TEST_F(RecoveryTest, RestartedSchedulerContinues) {
  ExpectTheSameBits({.servers = 2, .replicas = 2}, [](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("scheduler").ok());
    Restart(cluster, "scheduler");
  });
}

TEST_F(RecoveryTest, RestartedSchedulerNeedsNeitherTheDataNorItsAddressFile) {
  const std::string away = train_ + ".away";
  ExpectTheSameBits({.servers = 2, .replicas = 2}, [&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("scheduler").ok());
    std::filesystem::rename(train_, away);
    // The file cannot be written, as on a full disk.
    std::filesystem::create_directory(cluster.folder() + "/scheduler/address.tmp");
    Restart(cluster, "scheduler");
  });
  std::filesystem::rename(away, train_);
}

TEST_F(RecoveryTest, SchedulerRebuildsItsStateFromTheServers) {
  ExpectTheSameBits({.servers = 3, .replicas = 2}, [](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("scheduler").ok());
    ASSERT_TRUE(cluster.ReplaceDisk("scheduler").ok());
    const absl::Status restarted = cluster.Restart("scheduler", {}, {"--rebuild"});
    ASSERT_TRUE(restarted.ok()) << restarted;
    // A worker that the new scheduler does not know exits, as one that was declared dead does. Its
    // supervisor restarts it.
    for (const char* worker : {"worker-0", "worker-1"}) {
      ASSERT_TRUE(cluster.node(worker).WaitUntil(Clock::Real().Now() + kStartTimeout))
          << cluster.Describe();
      Restart(cluster, worker);
    }
  });
}

TEST_F(RecoveryTest, AllProcessesRecoverAtOnce) {
  ExpectTheSameBits({.servers = 2, .replicas = 2, .durability = "LOG"},
                    [](ProcessCluster& cluster) {
                      for (const std::string& name : cluster.names())
                        cluster.node(name).Signal(SIGKILL);
                      for (const std::string& name : cluster.names())
                        ASSERT_TRUE(cluster.Kill(name).ok());
                      for (const std::string& name : cluster.names()) Restart(cluster, name);
                    });
}

}  // namespace
}  // namespace pawl
