// The promises of the consistency modes when one worker is slow.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/generated_data.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{60};
constexpr uint64_t kSteps = 40;

class ConsistencyTest : public ClusterTest {
 protected:
  // Starts a job of kSteps steps with one rank per worker. The last worker is slow.
  ProcessCluster* StartWithStraggler(const std::string& consistency, uint32_t workers,
                                     int delay_ms) {
    const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
    EXPECT_TRUE(WriteClicks({.samples = 400, .fields = 3, .categories = 30}, train).ok());
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'straggler' seed: 1 data { train: '", train, "' format: LIBSVM }\n",
        "model { logistic_regression {} } optimizer { sgd { learning_rate: 0.1 } }\n",
        "consistency { ", consistency, " } batch_size: 40 epochs: 1000 max_steps: ", kSteps,
        " partitions: 8 logical_workers: ", workers);
    options.workers = workers;
    // In ASYNC nothing else prevents pulls from overtaking the ends of their own steps, and such
    // pulls have no staleness.
    options.flags["worker-0"] = {"--step_delay_ms=2"};
    options.flags[absl::StrCat("worker-", workers - 1)] = {
        absl::StrCat("--step_delay_ms=", delay_ms)};
    return StartCluster(options);
  }

  static uint64_t StepsOf(const GetStatusResponse& status, const std::string& node) {
    for (const NodeStatus& known : status.nodes()) {
      if (known.node() == node) return known.worker().steps_min();
    }
    return 0;
  }
};

TEST_F(ConsistencyTest, BoundIsReachedAndNeverExceeded) {
  for (const uint64_t staleness : {0, 1, 3}) {
    SCOPED_TRACE(staleness);
    ProcessCluster* const cluster =
        StartWithStraggler(absl::StrCat("mode: BOUNDED staleness: ", staleness), 2, 15);
    ASSERT_NE(cluster, nullptr);
    // A server that breaks the bound stops itself.
    const absl::Status ended = cluster->WaitForSuccess(kTimeout);
    ASSERT_TRUE(ended.ok()) << ended;
    const auto metrics = cluster->Metrics();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ((*metrics)["staleness_max"], staleness);
    EXPECT_EQ((*metrics)["steps"], kSteps);
  }
}

TEST_F(ConsistencyTest, BoundedLimitsTheFastWorker) {
  constexpr uint64_t kStaleness = 2;
  ProcessCluster* const cluster = StartWithStraggler("mode: BOUNDED staleness: 2", 2, 30);
  ASSERT_NE(cluster, nullptr);
  uint64_t farthest = 0;
  const auto ended = cluster->WaitFor(
      [&](const GetStatusResponse& status) {
        const uint64_t fast = StepsOf(status, "worker-0");
        const uint64_t slow = StepsOf(status, "worker-1");
        // Heartbeats carry the progress, so the fast worker's figure may be newer by one interval.
        if (slow > 0) farthest = std::max(farthest, fast > slow ? fast - slow : 0);
        return status.state() != STARTING && status.state() != RUNNING;
      },
      kTimeout);
  ASSERT_TRUE(ended.ok()) << ended.status();
  // The fast worker may have ended the step that it pulled with the allowed staleness. A heartbeat
  // interval is 200 ms, seven slow steps.
  EXPECT_LE(farthest, kStaleness + 1 + 10);
}

TEST_F(ConsistencyTest, AsyncDoesNotWait) {
  ProcessCluster* const cluster = StartWithStraggler("mode: ASYNC", 2, 100);
  ASSERT_NE(cluster, nullptr);
  // The fast worker has finished while the slow one is not half done.
  const auto status = cluster->WaitFor(
      [](const GetStatusResponse& status) { return StepsOf(status, "worker-0") == kSteps; },
      kTimeout);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_LT(StepsOf(*status, "worker-1"), kSteps / 2);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_GT((*cluster->Metrics())["staleness_max"], kSteps / 4);
}

// The only rank sends each pull before it pushes the step before.
TEST_F(ConsistencyTest, GradientsMissTheRanksOwnStepUnlessPullsWaitForIt) {
  for (const char* const mode : {"mode: ASYNC", "mode: BOUNDED staleness: 4"}) {
    SCOPED_TRACE(mode);
    for (const bool reads_own : {false, true}) {
      ProcessCluster* const cluster = StartWithStraggler(
          absl::StrCat(mode, reads_own ? " read_my_writes: true" : ""), 1, /*delay_ms=*/2);
      ASSERT_NE(cluster, nullptr);
      const absl::Status ended = cluster->WaitForSuccess(kTimeout);
      ASSERT_TRUE(ended.ok()) << ended;
      const auto metrics = cluster->Metrics();
      ASSERT_TRUE(metrics.ok() && metrics->contains("update_staleness")) << *metrics;
      const double mean = (*metrics)["update_staleness"]["mean"];
      if (reads_own) {
        EXPECT_EQ(mean, 0) << *metrics;
      } else {
        EXPECT_GT(mean, 0.5) << *metrics;
      }
    }
  }
}

TEST_F(ConsistencyTest, SyncWaitsForTheSlowest) {
  ProcessCluster* const cluster = StartWithStraggler("mode: SYNC", 2, 20);
  ASSERT_NE(cluster, nullptr);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  const auto metrics = cluster->Metrics();
  EXPECT_EQ((*metrics)["staleness_max"], 0);
  EXPECT_EQ((*metrics)["pushes_late"], 0);
  EXPECT_GT((*metrics)["wall_s"], 0.9 * 0.020 * kSteps);
}

TEST_F(ConsistencyTest, BackupWorkersCloseStepsWithoutTheStraggler) {
  ProcessCluster* const cluster = StartWithStraggler("mode: SYNC backup_workers: 1", 3, 100);
  ASSERT_NE(cluster, nullptr);
  const auto status = cluster->WaitFor(
      [](const GetStatusResponse& status) {
        return StepsOf(status, "worker-0") == kSteps && StepsOf(status, "worker-1") == kSteps;
      },
      kTimeout);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_LT(StepsOf(*status, "worker-2"), kSteps / 2);
  const absl::Status ended = cluster->WaitForSuccess(kTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_GT((*cluster->Metrics())["pushes_late"], 0);
}

}  // namespace
}  // namespace pawl
