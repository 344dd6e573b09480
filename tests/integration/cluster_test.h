// A fixture for tests of clusters.
#ifndef PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_
#define PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
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

}  // namespace pawl

#endif  // PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_
