// A fixture for tests that disturb a training job.
#ifndef PAWL_TESTS_INTEGRATION_DISTURBED_TRAINING_TEST_H_
#define PAWL_TESTS_INTEGRATION_DISTURBED_TRAINING_TEST_H_

#include <functional>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/integration/cluster_test.h"

namespace pawl {

// Trains a small SYNC job, and compares the resulting bits with those of an undisturbed run.
class DisturbedTrainingTest : public TrainingTest {
 protected:
  static constexpr std::chrono::seconds kStartTimeout{20};
  static constexpr std::chrono::seconds kRepairTimeout{20};
  static constexpr std::chrono::seconds kJobTimeout{60};
  static constexpr uint32_t kPartitions = 8;
  // 2 epochs of 2000 samples in batches of 64.
  static constexpr uint64_t kSteps = 64;

  struct Cluster {
    uint32_t servers = 3;
    uint32_t replicas = 2;
    std::string durability = "MEMORY";
    // The element type of pushed gradients.
    std::string gradients = "FLOAT32";
    // More settings of the job.
    std::string settings = "";
  };

  void SetUp() override { WriteData({.samples = 2000}, 0); }

  std::string JobText(const Cluster& cluster) const {
    return absl::StrCat(
        "name: 'disturbed' seed: 5 data { train: '", train_, "' format: LIBSVM }\n",
        "model { fm { dim: 4 } } optimizer { adam { learning_rate: 0.01 } } consistency { mode: "
        "SYNC }\n",
        "batch_size: 64 epochs: 2 logical_workers: 2 partitions: ", kPartitions,
        " durability: ", cluster.durability, " precision { gradients: ", cluster.gradients, " }\n",
        cluster.settings);
  }

  ProcessCluster* StartTraining(const Cluster& cluster) {
    ProcessClusterOptions options;
    options.job = JobText(cluster);
    options.servers = cluster.servers;
    options.workers = 2;
    options.lease = std::chrono::seconds(3);
    // A restarted process must keep its address.
    options.fixed_ports = true;
    options.replicas = cluster.replicas;
    for (const char* worker : {"worker-0", "worker-1"})
      options.flags[worker] = {"--step_delay_ms=40"};
    return StartCluster(options);
  }

  std::string FinalDigest(ProcessCluster& cluster) {
    const absl::Status ended = cluster.WaitUntilAllEnded(kJobTimeout);
    EXPECT_TRUE(ended.ok()) << ended;
    const auto metrics = cluster.Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok() || !(*metrics)["digest"].is_string()) return "none";
    EXPECT_EQ((*metrics)["state"], "COMPLETED");
    EXPECT_EQ((*metrics)["steps"], kSteps);
    return (*metrics)["digest"].get<std::string>();
  }

  // Runs `disturb` during training. The digest must be `expected`.
  void ExpectDigest(const std::string& expected, const Cluster& shape,
                    const std::function<void(ProcessCluster&)>& disturb) {
    ProcessCluster* const cluster = StartTraining(shape);
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(
        cluster->WaitFor([](const auto& status) { return status.steps() > 8; }, kStartTimeout)
            .ok());
    disturb(*cluster);
    if (HasFatalFailure()) return;
    EXPECT_EQ(FinalDigest(*cluster), expected);
  }

  // The same, with the digest of an undisturbed run. Servers, replicas and durability do not change
  // the bits, so tests share that run.
  void ExpectTheSameBits(const Cluster& shape,
                         const std::function<void(ProcessCluster&)>& disturb) {
    static auto* const digests = new std::map<std::string, std::string>;
    std::string& expected = (*digests)[shape.gradients + shape.settings];
    if (expected.empty()) {
      ProcessCluster* const quiet = StartTraining(shape);
      ASSERT_NE(quiet, nullptr);
      expected = FinalDigest(*quiet);
    }
    ExpectDigest(expected, shape, disturb);
  }

  static void Restart(ProcessCluster& cluster, const std::string& name) {
    SCOPED_TRACE(name);
    const absl::Status restarted = cluster.Restart(name);
    ASSERT_TRUE(restarted.ok()) << restarted;
    if (name == "scheduler") return;
    const auto member = cluster.WaitUntilMember(name, kStartTimeout);
    ASSERT_TRUE(member.ok()) << member.status();
  }

  // Waits until every partition has two in-sync replicas again after a loss. Some may temporarily
  // have more.
  void ExpectRepair(ProcessCluster& cluster) {
    const auto repaired = cluster.WaitFor(
        [&](const auto& status) {
          uint32_t replicas = 0;
          for (const NodeStatus& node : status.nodes())
            replicas += node.gone() ? 0 : node.partitions();
          return replicas >= 2 * kPartitions &&
                 cluster.Log("scheduler").find("every partition has 2 replicas in sync again") !=
                     std::string::npos;
        },
        kRepairTimeout);
    EXPECT_TRUE(repaired.ok()) << repaired.status();
  }
};

}  // namespace pawl

#endif  // PAWL_TESTS_INTEGRATION_DISTURBED_TRAINING_TEST_H_
