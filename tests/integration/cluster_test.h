// What the tests of whole clusters share.
#ifndef PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_
#define PAWL_TESTS_INTEGRATION_CLUSTER_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/harness/process_cluster.h"

namespace pawl {

// Starts clusters that live as long as the test, and shows the ends of their logs when it has
// failed.
class ClusterTest : public testing::Test {
 protected:
  // Null, with the test failed, if it cannot be started.
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
