// Servers that die, hang or leave while a SYNC job trains with two replicas of each partition: the job goes on, and ends with
// the bits of a run that nobody disturbed.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/generated_data.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kStartTimeout{20};
constexpr std::chrono::seconds kRepairTimeout{20};
constexpr std::chrono::seconds kJobTimeout{60};
constexpr uint32_t kPartitions = 8;
// 2 epochs of 2000 samples in batches of 64.
constexpr uint64_t kSteps = 64;

class FailoverTest : public ClusterTest {
 protected:
  void SetUp() override {
    train_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
    ASSERT_TRUE(WriteClicks({.samples = 2000}, train_).ok());
  }

  ProcessCluster* StartTraining() {
    ProcessClusterOptions options;
    options.job = absl::StrCat("name: 'failover' seed: 5 data { train: '", train_, "' format: LIBSVM }\n",
                               "model { fm { dim: 4 } } optimizer { adam { learning_rate: 0.01 } } consistency { mode: SYNC }\n",
                               "batch_size: 64 epochs: 2 logical_workers: 2 durability: MEMORY partitions: ", kPartitions);
    options.servers = 3;
    options.workers = 2;
    options.replicas = 2;
    for (const char* worker : {"worker-0", "worker-1"}) options.flags[worker] = {"--step_delay_ms=40"};
    return StartCluster(options);
  }

  std::string DigestAtTheEnd(ProcessCluster& cluster) {
    const auto ended = cluster.WaitFor([](const auto& status) { return status.state() == COMPLETED; }, kJobTimeout);
    EXPECT_TRUE(ended.ok()) << ended.status();
    const absl::Status all = cluster.WaitUntilAllEnded(kStartTimeout);
    EXPECT_TRUE(all.ok()) << all;
    const auto metrics = cluster.Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok() || !(*metrics)["digest"].is_string()) return "none";
    EXPECT_EQ((*metrics)["steps"], kSteps);
    return (*metrics)["digest"].get<std::string>();
  }

  // Does `disturb` in the middle of training. The digest must be that of a run without it.
  void ExpectTheSameBits(const std::function<void(ProcessCluster&)>& disturb) {
    ProcessCluster* const quiet = StartTraining();
    ASSERT_NE(quiet, nullptr);
    const std::string expected = DigestAtTheEnd(*quiet);
    ProcessCluster* const disturbed = StartTraining();
    ASSERT_NE(disturbed, nullptr);
    ASSERT_TRUE(disturbed->WaitFor([](const auto& status) { return status.steps() > 8; }, kStartTimeout).ok());
    disturb(*disturbed);
    if (HasFatalFailure()) return;
    EXPECT_EQ(DigestAtTheEnd(*disturbed), expected);
  }

  // Every partition has two replicas in sync again.
  void ExpectRepair(ProcessCluster& cluster) {
    const auto repaired = cluster.WaitFor(
        [](const auto& status) {
          uint32_t replicas = 0;
          for (const NodeStatus& node : status.nodes()) replicas += node.gone() ? 0 : node.partitions();
          return replicas == 2 * kPartitions;
        },
        kRepairTimeout);
    EXPECT_TRUE(repaired.ok()) << repaired.status();
  }

  std::string train_;
};

TEST_F(FailoverTest, AKilledServerChangesNothingAndIsReplacedByTheOthers) {
  ExpectTheSameBits([&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-1").ok());
    ExpectRepair(cluster);
  });
}

TEST_F(FailoverTest, AServerThatIsKilledAndStartedAgainTakesPartAgain) {
  ExpectTheSameBits([&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-0").ok());
    ASSERT_TRUE(cluster.Restart("server-0").ok());
    ASSERT_TRUE(cluster.WaitUntilMember("server-0", kStartTimeout).ok());
    ExpectRepair(cluster);
  });
}

TEST_F(FailoverTest, APausedPrimaryIsReplacedAndComesBackWithoutHarm) {
  ExpectTheSameBits([&](ProcessCluster& cluster) {
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

TEST_F(FailoverTest, AServerThatIsAskedToEndHandsOverAndLeavesInPeace) {
  ExpectTheSameBits([&](ProcessCluster& cluster) {
    cluster.node("server-1").Signal(SIGTERM);
    ASSERT_TRUE(cluster.node("server-1").WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
    EXPECT_TRUE(cluster.node("server-1").Succeeded()) << cluster.node("server-1").HowItEnded();
    EXPECT_EQ(cluster.Log("server-1").find("nobody has taken over"), std::string::npos);
  });
}

}  // namespace
}  // namespace pawl
