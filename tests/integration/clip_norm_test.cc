// Jobs with clip_global_norm, whose steps close in a phase of their own. They end with the bits of
// a single-process reference, whatever is killed.
#include <csignal>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/integration/disturbed_training_test.h"

namespace pawl {
namespace {

class ClipNormTest : public DisturbedTrainingTest {
 protected:
  // Small enough that most steps are scaled down, and not all.
  static constexpr const char* kSettings = "clip_global_norm: 0.17";

  static Cluster Shape(uint32_t servers, uint32_t replicas, const std::string& durability) {
    return {
        .servers = servers, .replicas = replicas, .durability = durability, .settings = kSettings};
  }

  std::string ReferenceDigest(const Cluster& shape) const {
    const auto reference = TrainReference(JobText(shape));
    EXPECT_TRUE(reference.ok()) << reference.status();
    if (!reference.ok()) return "";
    EXPECT_GT(reference->clipped_steps, kSteps / 4);
    EXPECT_LT(reference->clipped_steps, kSteps);
    Cluster unclipped = shape;
    unclipped.settings = "";
    const auto without = TrainReference(JobText(unclipped));
    EXPECT_TRUE(without.ok()) << without.status();
    if (!without.ok()) return "";
    EXPECT_NE(without->digest, reference->digest);
    return absl::StrFormat("%08x", reference->digest);
  }

  void ExpectReferenceBits(const Cluster& shape,
                           const std::function<void(ProcessCluster&)>& disturb) {
    ExpectDigest(ReferenceDigest(shape), shape, disturb);
  }
};

TEST_F(ClipNormTest, UndisturbedJobEqualsTheReference) {
  ExpectReferenceBits(Shape(1, 1, "MEMORY"), [](ProcessCluster&) {});
}

TEST_F(ClipNormTest, KilledServerAndWorkerChangeNoBit) {
  ExpectReferenceBits(Shape(3, 2, "MEMORY"), [&](ProcessCluster& cluster) {
    ASSERT_TRUE(cluster.Kill("server-1").ok());
    ASSERT_TRUE(cluster.Kill("worker-0").ok());
    Restart(cluster, "worker-0");
    ExpectRepair(cluster);
  });
}

// Some partitions have closed a step and others have not.
TEST_F(ClipNormTest, AllProcessesRecoverAtOnce) {
  ExpectReferenceBits(Shape(2, 2, "LOG"), [](ProcessCluster& cluster) {
    for (const std::string& name : cluster.names()) cluster.node(name).Signal(SIGKILL);
    for (const std::string& name : cluster.names()) ASSERT_TRUE(cluster.Kill(name).ok());
    for (const std::string& name : cluster.names()) Restart(cluster, name);
  });
}

}  // namespace
}  // namespace pawl
