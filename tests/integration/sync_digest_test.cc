// SYNC gives the same bits for any number of servers and worker processes, equal to those of a
// single-process reference.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/integration/cluster_test.h"
#include "worker/device/cpu/gemm/gemm.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{60};
constexpr uint32_t kLogicalWorkers = 4;

class SyncDigestTest : public TrainingTest {
 protected:
  void SetUp() override {
    // Not a multiple of the batch size, with a last batch too small to give every rank a share.
    WriteData({.samples = 1283, .fields = 5, .categories = 60}, 300);
  }

  std::string JobText(const std::string& more) const {
    return absl::StrCat(
        "name: 'sync' seed: 7 data { train: '", train_, "' eval: '", eval_, "' format: LIBSVM }\n",
        "consistency { mode: SYNC } batch_size: 128 epochs: 2 partitions: 16 logical_workers: ",
        kLogicalWorkers, "\n", more);
  }

  uint32_t ReferenceDigestOf(const std::string& text) const {
    const auto result = TrainReference(text);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return 0;
    EXPECT_EQ(result->steps, 22u);
    return result->digest;
  }

  void ExpectDigest(const std::string& job, uint32_t servers, uint32_t workers, uint32_t digest) {
    SCOPED_TRACE(absl::StrCat(servers, " servers, ", workers, " workers"));
    ProcessClusterOptions options;
    options.job = job;
    options.servers = servers;
    options.workers = workers;
    ProcessCluster* const cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    const absl::Status ended = cluster->WaitForSuccess(kJobTimeout);
    ASSERT_TRUE(ended.ok()) << ended;
    const auto metrics = cluster->Metrics();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ((*metrics)["state"], "COMPLETED");
    EXPECT_EQ((*metrics)["digest"], absl::StrFormat("%08x", digest));
    EXPECT_EQ((*metrics)["steps"], 22);
    EXPECT_EQ((*metrics)["samples"], 2 * 1283);
    EXPECT_EQ((*metrics)["pushes_late"], 0);
  }
};

TEST_F(SyncDigestTest, DeepFmWithAdagradIsTheSameOnAnyCluster) {
  const std::string job = JobText(
      "model { deepfm { dim: 4 hidden: [16, 8] } } optimizer { adagrad { learning_rate: 0.05 } }");
  const uint32_t digest = ReferenceDigestOf(job);
  for (const auto& [servers, workers] :
       {std::pair(1u, 1u), {2u, 1u}, {3u, 2u}, {1u, 4u}, {2u, 2u}}) {
    ExpectDigest(job, servers, workers, digest);
  }
}

TEST_F(SyncDigestTest, LogisticRegressionWithSgdEqualsTheReference) {
  const std::string job = JobText(
      "model { logistic_regression {} } optimizer { sgd { learning_rate: 0.5 } l2: 0.001 }");
  ExpectDigest(job, 2, 2, ReferenceDigestOf(job));
}

TEST_F(SyncDigestTest, FactorizationMachineWithAdamEqualsTheReference) {
  const std::string job =
      JobText("model { fm { dim: 8 } } optimizer { adam { learning_rate: 0.01 } }");
  ExpectDigest(job, 3, 4, ReferenceDigestOf(job));
}

TEST_F(SyncDigestTest, MixedOptimizersEqualTheReference) {
  const std::string job = JobText(
      "model { wide_deep { dim: 4 hidden: [300, 250] } } optimizer { adam { learning_rate: 0.001 } "
      "}\n"
      "sparse_optimizer { adagrad { learning_rate: 0.1 } }");
  ExpectDigest(job, 2, 3, ReferenceDigestOf(job));
}

TEST_F(SyncDigestTest, SixteenBitGradientsAreTheSameOnAnyCluster) {
  const std::string model =
      "model { deepfm { dim: 4 hidden: [16, 8] } } optimizer { adagrad { learning_rate: 0.05 } }";
  const std::string job = JobText(model + " precision { gradients: BFLOAT16 }");
  const uint32_t digest = ReferenceDigestOf(job);
  // The bits differ from those of FLOAT32.
  EXPECT_NE(digest, ReferenceDigestOf(JobText(model)));
  ExpectDigest(job, 1, 2, digest);
  ExpectDigest(job, 3, 4, digest);
  // For any loss scales that a rank has tried, and with recomputed layers.
  const std::string all_kept =
      JobText(model + " precision { compute: FLOAT16 gradients: FLOAT16 loss_scale: 16777216 }");
  const std::string float16 = JobText(
      "model { deepfm { dim: 4 hidden: [16, 8] } recompute: 'mlp/0' } optimizer { adagrad { "
      "learning_rate: 0.05 } }\n"
      "precision { compute: FLOAT16 gradients: FLOAT16 loss_scale: 16777216 }");
  const uint32_t of_float16 = ReferenceDigestOf(float16);
  EXPECT_EQ(of_float16, ReferenceDigestOf(all_kept));
  // Each of the two types changes the result.
  for (const char* one : {"", " precision { compute: FLOAT16 loss_scale: 16777216 }",
                          " precision { gradients: FLOAT16 }"}) {
    EXPECT_NE(of_float16, ReferenceDigestOf(JobText(model + one))) << one;
  }
  ExpectDigest(float16, 2, 1, of_float16);
  ExpectDigest(float16, 1, 4, of_float16);
}

TEST_F(SyncDigestTest, WorkersWithDifferentMatrixKernelsGiveTheSameBits) {
  const std::string job = JobText(
      "model { deepfm { dim: 4 hidden: [64, 32] } } optimizer { adagrad { learning_rate: 0.05 } }");
  ProcessClusterOptions options;
  options.job = job;
  options.servers = 2;
  options.workers = 3;
  const std::vector<GemmKernel> kernels = SupportedGemmKernels();
  const std::vector<std::string> names = {"portable", "avx2", "avx512"};
  for (uint32_t worker = 0; worker < options.workers; ++worker) {
    const size_t kernel = std::min<size_t>(worker, kernels.size() - 1);
    options.flags[absl::StrCat("worker-", worker)] = {
        absl::StrCat("--matmul_kernel=", names[static_cast<size_t>(kernels[kernel])])};
  }
  options.environment["worker-0"] = {"OPENBLAS_CORETYPE=Haswell"};
  options.environment["worker-1"] = {"OPENBLAS_CORETYPE=Prescott"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const absl::Status ended = cluster->WaitForSuccess(kJobTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_EQ((*cluster->Metrics())["digest"], absl::StrFormat("%08x", ReferenceDigestOf(job)));
}

}  // namespace
}  // namespace pawl
