// Fixtures for tests of clusters.
#ifndef PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_
#define PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/harness/generated_data.h"
#include "tests/harness/process_cluster.h"

namespace pawl {

// Starts clusters that live as long as the test, and prints the ends of their logs if the test
// fails.
class ClusterTest : public testing::Test {
 protected:
  // Returns null and fails the test if the cluster cannot start.
  ProcessCluster* StartCluster(const ProcessClusterOptions& options) {
    auto cluster = ProcessCluster::Start(options);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    if (!cluster.ok()) return nullptr;
    clusters_.push_back(*std::move(cluster));
    return clusters_.back().get();
  }

  void TearDown() override {
    if (!HasFailure()) return;
    for (const auto& cluster : clusters_) {
      std::printf("The cluster in %s:\n%s", cluster->folder().c_str(), cluster->Describe().c_str());
    }
  }

 private:
  std::vector<std::unique_ptr<ProcessCluster>> clusters_;
};

// A scheduler and a server with TLS, whose job callers must not disturb.
class TlsClusterTest : public ClusterTest {
 protected:
  // See ProcessClusterOptions::token_key.
  void Start(const std::string& token_key = "") {
    ProcessClusterOptions options;
    options.job = "name: 'test' seed: 3 partitions: 4 consistency { mode: ASYNC }";
    options.tls = true;
    options.token_key = token_key;
    cluster_ = StartCluster(options);
    ASSERT_NE(cluster_, nullptr);
    const auto server = cluster_->AddressOf("server-0");
    ASSERT_TRUE(server.ok()) << server.status();
    addresses_ = {cluster_->scheduler_address(), *server};
  }

  void ExpectJobIsUndisturbed() {
    const auto status = cluster_->GetStatus();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_FALSE(status->state() == STOPPED || status->state() == FAILED);
    EXPECT_FALSE(cluster_->node("scheduler").HasEnded());
    EXPECT_FALSE(cluster_->node("server-0").HasEnded());
  }

  ProcessCluster* cluster_ = nullptr;
  // The scheduler and the server.
  std::vector<std::string> addresses_;
};

// Trains on generated data.
class TrainingTest : public ClusterTest {
 protected:
  // Writes `clicks` with seed 1 to train_ and `eval_samples` of the same kind with seed 2 to eval_,
  // in a folder of this test's own.
  void WriteData(ClicksOptions clicks, uint64_t eval_samples) {
    folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    train_ = folder_ + "/train.libsvm";
    eval_ = folder_ + "/eval.libsvm";
    clicks.seed = 1;
    ASSERT_TRUE(WriteClicks(clicks, train_).ok());
    clicks.seed = 2;
    clicks.samples = eval_samples;
    ASSERT_TRUE(WriteClicks(clicks, eval_).ok());
  }

  // Waits for the scheduler's end and returns its metrics. The job must have completed.
  static nlohmann::json CompletedMetrics(ProcessCluster& cluster, MonotonicDuration timeout) {
    EXPECT_TRUE(cluster.node("scheduler").WaitUntil(Clock::Real().Now() + timeout))
        << cluster.Describe();
    const auto metrics = cluster.Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok()) return nlohmann::json::object();
    EXPECT_EQ((*metrics)["state"], "COMPLETED") << *metrics;
    return *metrics;
  }

  // The steps of the evaluations in the metrics of a job.
  static std::vector<uint64_t> EvaluatedSteps(const nlohmann::json& metrics) {
    std::vector<uint64_t> steps;
    for (const auto& evaluation : metrics.value("evaluations", nlohmann::json::array()))
      steps.push_back(evaluation["step"].get<uint64_t>());
    return steps;
  }

  // The multiples of `interval` up to `last`.
  static std::vector<uint64_t> Multiples(uint64_t interval, uint64_t last) {
    std::vector<uint64_t> steps;
    for (uint64_t step = interval; step <= last; step += interval) steps.push_back(step);
    return steps;
  }

  std::string folder_;
  std::string train_;
  std::string eval_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_
