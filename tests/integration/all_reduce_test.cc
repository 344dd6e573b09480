// Jobs with real processes whose workers train the dense part of the model by collectives.
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/integration/cluster_test.h"
#include "worker/collective/gloo/collective.h"
#include "worker/process/interrupt.h"
#include "worker/process/worker.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{100};
constexpr std::chrono::seconds kWaitTimeout{60};
constexpr uint64_t kEpochs = 4;
// 4000 samples in batches of 100.
constexpr uint64_t kSteps = kEpochs * 40;
// The tolerance between the AUCs of trainings with the same steps, for rounding and for the effect
// of a death.
constexpr double kClose = 0.01;

class AllReduceTest : public TrainingTest {
 protected:
  void SetUp() override { WriteData({.samples = 4000, .categories = 40}, 2000); }

  ProcessCluster* StartJob(const std::string& settings, uint32_t workers,
                           uint32_t step_delay_ms = 0, const std::string& mode = "mode: SYNC") {
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'dense' seed: 7 data { train: '", train_, "' eval: '", eval_, "' format: LIBSVM }\n",
        "model { deepfm { dim: 4 hidden: [32, 16] } } optimizer { adam { learning_rate: 0.003 } "
        "}\n",
        "consistency { ", mode, " } batch_size: 100 partitions: 8 logical_workers: 4\n",
        "epochs: ", kEpochs, "\n", settings, "\n");
    options.servers = 2;
    options.workers = workers;
    options.lease = std::chrono::seconds(4);
    options.flags["scheduler"] = {"--worker_takeover_grace_s=1"};
    if (step_delay_ms > 0) {
      for (uint32_t i = 0; i < workers; ++i) {
        options.flags[absl::StrCat("worker-", i)] = {
            absl::StrCat("--step_delay_ms=", step_delay_ms)};
      }
    }
    return StartCluster(options);
  }

  void WaitForSteps(ProcessCluster& cluster, uint64_t steps) {
    const auto status = cluster.WaitFor(
        [&](const GetStatusResponse& now) { return now.state() > RUNNING || now.steps() >= steps; },
        kWaitTimeout);
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), RUNNING) << status->failure();
  }

  nlohmann::json WaitForCompletion(ProcessCluster& cluster) {
    nlohmann::json metrics = CompletedMetrics(cluster, kJobTimeout);
    EXPECT_EQ(metrics.value("steps", uint64_t{0}), kSteps);
    return metrics;
  }
  nlohmann::json Train(const std::string& settings, uint32_t workers,
                       const std::string& mode = "mode: SYNC") {
    ProcessCluster* const cluster = StartJob(settings, workers, 0, mode);
    return cluster == nullptr ? nlohmann::json() : WaitForCompletion(*cluster);
  }
  // The AUC of training through the servers.
  double ServersAuc() {
    const nlohmann::json metrics = Train("dense_path: SERVER", 2);
    return metrics.is_null() ? 0 : metrics["eval"]["auc"].get<double>();
  }
};

TEST_F(AllReduceTest, LearnsAsThroughTheServers) {
  const double expected = ServersAuc();
  EXPECT_GT(expected, 0.65);
  for (const uint32_t workers : {1, 3}) {
    const nlohmann::json metrics = Train(
        "dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 write_back_steps: 7 }", workers);
    ASSERT_FALSE(metrics.is_null());
    EXPECT_NEAR(metrics["eval"]["auc"].get<double>(), expected, kClose) << workers;
  }
}

TEST_F(AllReduceTest, ShardedOptimizerLearnsAsAReplicatedOne) {
  const std::string settings =
      "dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 write_back_steps: 7";
  const nlohmann::json whole = Train(settings + " }", 2);
  ASSERT_FALSE(whole.is_null());
  const std::string sharded = settings + " sharded_optimizer: true }";
  const nlohmann::json undisturbed = Train(sharded, 2);
  ASSERT_FALSE(undisturbed.is_null());
  EXPECT_NEAR(undisturbed["eval"]["auc"].get<double>(), whole["eval"]["auc"].get<double>(), kClose);

  // A dead worker's share of the optimizer slots is restored from a few steps earlier.
  ProcessCluster* const cluster = StartJob(sharded, 3, 10);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 30));
  ASSERT_TRUE(cluster->Kill("worker-1").ok());
  const nlohmann::json disturbed = WaitForCompletion(*cluster);
  ASSERT_FALSE(disturbed.is_null());
  EXPECT_NEAR(disturbed["eval"]["auc"].get<double>(), whole["eval"]["auc"].get<double>(), kClose);
}

TEST_F(AllReduceTest, RunsWithEqualWorkersGiveTheSameBits) {
  const std::string settings =
      "dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 write_back_steps: 10 }";
  const nlohmann::json one = Train(settings, 2);
  const nlohmann::json other = Train(settings, 2);
  ASSERT_FALSE(one.is_null() || other.is_null());
  EXPECT_EQ(one["digest"], other["digest"]);
}

TEST_F(AllReduceTest, OtherModesAndMicroBatchesLearn) {
  const double expected = ServersAuc();
  for (const char* mode : {"mode: ASYNC", "mode: BOUNDED staleness: 2"}) {
    const nlohmann::json metrics = Train("dense_path: ALLREDUCE micro_batches: 3", 2, mode);
    ASSERT_FALSE(metrics.is_null());
    EXPECT_NEAR(metrics["eval"]["auc"].get<double>(), expected, 2 * kClose) << mode;
  }
}

TEST_F(AllReduceTest, ContinuesAfterAWorkerDies) {
  const double expected = ServersAuc();
  ProcessCluster* const cluster =
      StartJob("dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 }", 3, 10);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 30));
  ASSERT_TRUE(cluster->Kill("worker-1").ok());
  const nlohmann::json metrics = WaitForCompletion(*cluster);
  ASSERT_FALSE(metrics.is_null());
  EXPECT_NEAR(metrics["eval"]["auc"].get<double>(), expected, kClose);
}

// A worker with other flags, or without the libraries of the others. It runs in this process.
TEST_F(AllReduceTest, IncompatibleWorkerEndsAndOthersContinue) {
  ProcessCluster* const cluster = StartJob("dense_path: ALLREDUCE elastic: true", 2, 50);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 10));
  WorkerOptions options;
  options.scheduler = cluster->scheduler_address();
  options.collective_kinds.push_back(
      {.name = "fast", .exclusive = "", .make = GlooCollectives("127.0.0.1")});
  Interrupt leave, abandon;
  const WorkerOutcome outcome = RunWorker(options, leave, abandon);
  EXPECT_EQ(outcome.end, WorkerEnd::kUnable) << outcome.status;
  for (const char* const part : {"worker-0 has gloo", "worker-2 has fast"}) {
    EXPECT_TRUE(absl::StrContains(outcome.status.message(), part)) << outcome.status;
  }
  EXPECT_FALSE(WaitForCompletion(*cluster).is_null());
}

TEST_F(AllReduceTest, ContinuesFromTheServersAfterAllWorkersDie) {
  const double expected = ServersAuc();
  ProcessCluster* const cluster = StartJob(
      "dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 write_back_steps: 10 }", 2, 10);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 45));
  for (const char* worker : {"worker-0", "worker-1"}) ASSERT_TRUE(cluster->Kill(worker).ok());
  for (const char* worker : {"worker-0", "worker-1"}) ASSERT_TRUE(cluster->Restart(worker).ok());
  const nlohmann::json metrics = WaitForCompletion(*cluster);
  ASSERT_FALSE(metrics.is_null());
  EXPECT_NEAR(metrics["eval"]["auc"].get<double>(), expected, 2 * kClose);
}

TEST_F(AllReduceTest, JoiningWorkerTakesItsShare) {
  const double expected = ServersAuc();
  ProcessCluster* const cluster = StartJob("dense_path: ALLREDUCE elastic: true", 1, 20);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 10));
  ASSERT_TRUE(cluster->AddWorker({"--step_delay_ms=20"}).ok());
  const auto shared = cluster->WaitFor(
      [](const GetStatusResponse& now) {
        for (const NodeStatus& node : now.nodes()) {
          if (node.node() == "worker-1" && node.logical_workers_size() == 2) return true;
        }
        return now.state() > RUNNING;
      },
      kWaitTimeout);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_EQ(shared->state(), RUNNING);
  const nlohmann::json metrics = WaitForCompletion(*cluster);
  ASSERT_FALSE(metrics.is_null());
  EXPECT_NEAR(metrics["eval"]["auc"].get<double>(), expected, kClose);
}

}  // namespace
}  // namespace pawl
