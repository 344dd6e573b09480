// Workers join and leave a running job; the ranks move to the present workers.
#include <signal.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{100};
constexpr std::chrono::seconds kWaitTimeout{60};
constexpr uint64_t kTrainSamples = 2000;
constexpr uint64_t kStepsPerEpoch = 20;
constexpr uint32_t kRanks = 8;

std::vector<uint32_t> RanksOf(const GetStatusResponse& status, const std::string& worker) {
  for (const NodeStatus& node : status.nodes()) {
    if (node.node() == worker)
      return {node.logical_workers().begin(), node.logical_workers().end()};
  }
  return {};
}

class WorkerElasticityTest : public TrainingTest {
 protected:
  void SetUp() override {
    WriteData({.samples = kTrainSamples, .fields = 5, .categories = 60}, 300);
  }

  // FM has sparse tables and a dense one.
  std::string JobText(const std::string& consistency, uint64_t epochs,
                      uint64_t evaluation_interval) const {
    return absl::StrCat("name: 'elastic' seed: 7 data { train: '", train_, "' eval: '", eval_,
                        "' format: LIBSVM }\n",
                        "model { fm { dim: 4 } } optimizer { adagrad { learning_rate: 0.1 } }\n",
                        "consistency { ", consistency,
                        " } batch_size: 100 partitions: 16 logical_workers: ", kRanks,
                        "\nepochs: ", epochs, " evaluation { every_steps: ", evaluation_interval,
                        " } elastic: true\n");
  }

  ProcessCluster* StartWorkers(const std::string& job, uint32_t workers) {
    ProcessClusterOptions options;
    options.job = job;
    options.servers = 2;
    options.workers = workers;
    options.lease = std::chrono::seconds(4);
    options.flags["scheduler"] = {"--worker_takeover_grace_s=1"};
    for (uint32_t i = 0; i < workers; ++i)
      options.flags[absl::StrCat("worker-", i)] = {"--step_delay_ms=20"};
    return StartCluster(options);
  }

  GetStatusResponse WaitFor(ProcessCluster& cluster, const std::string& what,
                            const std::function<bool(const GetStatusResponse&)>& holds) {
    const auto status = cluster.WaitFor(
        [&](const GetStatusResponse& now) { return now.state() > RUNNING || holds(now); },
        kWaitTimeout);
    EXPECT_TRUE(status.ok()) << what << ": " << status.status();
    if (!status.ok()) return GetStatusResponse();
    EXPECT_EQ(status->state(), RUNNING)
        << "the job ended before " << what << ": " << status->failure();
    return *status;
  }
  void WaitForSteps(ProcessCluster& cluster, uint64_t steps) {
    WaitFor(cluster, absl::StrCat("step ", steps),
            [&](const auto& now) { return now.steps() >= steps; });
  }

  nlohmann::json WaitForCompletion(ProcessCluster& cluster, uint64_t epochs,
                                   uint64_t evaluation_interval) {
    nlohmann::json metrics = CompletedMetrics(cluster, kJobTimeout);
    EXPECT_EQ(metrics.value("steps", uint64_t{0}), epochs * kStepsPerEpoch);
    EXPECT_EQ(metrics.value("samples", uint64_t{0}), epochs * kTrainSamples)
        << "each sample counts once";
    EXPECT_EQ(EvaluatedSteps(metrics), Multiples(evaluation_interval, epochs * kStepsPerEpoch));
    for (const auto& evaluation : metrics.value("evaluations", nlohmann::json::array()))
      EXPECT_EQ(evaluation["samples"], 300);
    return metrics;
  }
};

TEST_F(WorkerElasticityTest, ChangingWorkersLeaveTheBitsOfASyncJob) {
  constexpr uint64_t kEpochs = 12;
  constexpr uint64_t kInterval = 20;
  const std::string text = JobText("mode: SYNC", kEpochs, kInterval);
  ProcessCluster* const cluster = StartWorkers(text, 4);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 10));
  // One worker is asked to leave; two die and do not return.
  cluster->node("worker-3").Signal(SIGTERM);
  ASSERT_TRUE(cluster->node("worker-3").WaitUntil(Clock::Real().Now() + std::chrono::seconds(5)));
  EXPECT_TRUE(cluster->node("worker-3").Succeeded()) << cluster->node("worker-3").HowItEnded();
  ASSERT_TRUE(cluster->Kill("worker-1").ok());
  ASSERT_NO_FATAL_FAILURE(WaitFor(*cluster, "two workers", [](const GetStatusResponse& now) {
    return RanksOf(now, "worker-0").size() + RanksOf(now, "worker-2").size() == kRanks;
  }));
  ASSERT_TRUE(cluster->Kill("worker-2").ok());
  const GetStatusResponse alone = WaitFor(*cluster, "one worker", [](const GetStatusResponse& now) {
    return RanksOf(now, "worker-0").size() == kRanks;
  });
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, alone.steps() + 10));
  // Two new workers get their share, the second while the first is getting its own.
  for (int i = 0; i < 2; ++i) {
    const absl::Status added = cluster->AddWorker({"--step_delay_ms=20"});
    ASSERT_TRUE(added.ok()) << added;
  }
  const GetStatusResponse three =
      WaitFor(*cluster, "three workers", [](const GetStatusResponse& now) {
        return RanksOf(now, "worker-0").size() <= 3 && RanksOf(now, "worker-4").size() >= 2 &&
               RanksOf(now, "worker-5").size() >= 2;
      });
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, three.steps() + 5));

  const auto reference = TrainReference(text);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const nlohmann::json metrics = WaitForCompletion(*cluster, kEpochs, kInterval);
  EXPECT_EQ(metrics["digest"], absl::StrFormat("%08x", reference->digest));
  for (const char* worker : {"worker-0", "worker-4", "worker-5"}) {
    ASSERT_TRUE(cluster->node(worker).WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
    EXPECT_TRUE(cluster->node(worker).Succeeded())
        << worker << " " << cluster->node(worker).HowItEnded();
  }
}

TEST_F(WorkerElasticityTest, OtherModesContinueWithoutALostWorker) {
  constexpr uint64_t kEpochs = 6;
  constexpr uint64_t kInterval = 20;
  for (const char* mode : {"mode: BOUNDED staleness: 2", "mode: ASYNC"}) {
    SCOPED_TRACE(mode);
    ProcessCluster* const cluster = StartWorkers(JobText(mode, kEpochs, kInterval), 3);
    ASSERT_NE(cluster, nullptr);
    ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 25));
    ASSERT_TRUE(cluster->Kill("worker-1").ok());
    WaitFor(*cluster, "two workers", [](const GetStatusResponse& now) {
      return RanksOf(now, "worker-0").size() == kRanks / 2 &&
             RanksOf(now, "worker-2").size() == kRanks / 2;
    });
    ASSERT_TRUE(cluster->AddWorker({"--step_delay_ms=20"}).ok());
    WaitFor(*cluster, "three workers",
            [](const GetStatusResponse& now) { return RanksOf(now, "worker-3").size() >= 2; });
    WaitForCompletion(*cluster, kEpochs, kInterval);
  }
}

// More workers than ranks, with one that waits from the start.
TEST_F(WorkerElasticityTest, StandbyWorkerTakesOver) {
  constexpr uint64_t kEpochs = 4;
  constexpr uint64_t kInterval = 20;
  std::string text = JobText("mode: SYNC", kEpochs, kInterval);
  text.replace(text.find("elastic: true"), 13, "elastic: false");
  ProcessCluster* const cluster = StartWorkers(text, 2);
  ASSERT_NE(cluster, nullptr);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(cluster->AddWorker({"--step_delay_ms=20"}).ok());
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 10));
  ASSERT_TRUE(cluster->Kill("worker-0").ok());
  WaitFor(*cluster, "the spare", [](const GetStatusResponse& now) {
    return RanksOf(now, "worker-2").size() + RanksOf(now, "worker-3").size() == kRanks / 2;
  });
  WaitForCompletion(*cluster, kEpochs, kInterval);
  for (const char* worker : {"worker-1", "worker-2", "worker-3"}) {
    ASSERT_TRUE(cluster->node(worker).WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
    EXPECT_TRUE(cluster->node(worker).Succeeded())
        << worker << " " << cluster->node(worker).HowItEnded();
  }
}

}  // namespace
}  // namespace pawl
