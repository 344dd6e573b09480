#include "tests/harness/reference/reference_trainer.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/harness/generated_data.h"

namespace pawl {
namespace {

Job SmallJob(const std::string& more) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
  EXPECT_TRUE(WriteClicks({.samples = 500, .fields = 4, .categories = 30, .seed = 5}, path).ok());
  Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("name: 'small' seed: 7 data { train: '", path,
                   "' format: LIBSVM } consistency { mode: SYNC } ",
                   "batch_size: 64 epochs: 3 logical_workers: 4 partitions: 16 ", more),
      &job));
  return job;
}

TEST(ReferenceTrainerTest, TrainingLowersTheLoss) {
  const auto result = TrainReference(
      SmallJob("model { logistic_regression {} } optimizer { sgd { learning_rate: 5 } }"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 3u * 8);
  EXPECT_EQ(result->samples, 3u * 500);
  EXPECT_LT(result->last_loss, 0.9 * result->first_loss);
  EXPECT_NE(result->digest, 0u);
}

TEST(ReferenceTrainerTest, DigestDependsOnTheSeedOnly) {
  const char* kModel =
      "model { deepfm { dim: 4 hidden: [8, 4] } } optimizer { adagrad { learning_rate: 0.05 } }";
  Job job = SmallJob(kModel);
  const uint32_t digest = TrainReference(job)->digest;
  EXPECT_EQ(TrainReference(job)->digest, digest);
  job.set_seed(8);
  EXPECT_NE(TrainReference(job)->digest, digest);
}

TEST(ReferenceTrainerTest, BackupWorkersAreRefused) {
  Job job = SmallJob("model { logistic_regression {} } optimizer { sgd { learning_rate: 0.5 } }");
  job.mutable_consistency()->set_backup_workers(1);
  EXPECT_EQ(TrainReference(job).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace pawl
