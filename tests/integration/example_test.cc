// The README's example program works as described.
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};

using ExampleTest = ClusterTest;

TEST_F(ExampleTest, FitsItsWeight) {
  ProcessClusterOptions options;
  options.job = "name: 'example' seed: 1 partitions: 8";
  options.servers = 2;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->AddProcess("example", "client_lib/example/example", {cluster->scheduler_address()})
          .ok());
  ASSERT_TRUE(cluster->node("example").WaitUntil(Clock::Real().Now() + kTimeout)) << "still runs";
  EXPECT_TRUE(cluster->node("example").Succeeded()) << cluster->node("example").HowItEnded();
  EXPECT_NE(cluster->Log("example").find("the weight is 2.0000"), std::string::npos)
      << cluster->Log("example");
}

}  // namespace
}  // namespace pawl
