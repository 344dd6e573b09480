#include "worker/train/micro_batches.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/batch.h"
#include "worker/data/sampler.h"
#include "worker/device/cpu/device.h"

namespace pawl {
namespace {

constexpr uint32_t kSamples = 7;
constexpr uint32_t kNumbers = 5;
constexpr float kScale = 0.25f;

class MicroBatchesTest : public testing::Test {
 protected:
  MicroBatchesTest() {
    Job job;
    job.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1f);
    job.mutable_model()->mutable_mlp()->add_hidden(3);
    job.mutable_model()->mutable_mlp()->set_classes(1);
    model_ = TrainingModel::Create(job, {.numeric_count = kNumbers}, device_).value();
    batch_.samples = kSamples;
    batch_.numeric_count = kNumbers;
    for (uint32_t s = 0; s < kSamples; ++s) batch_.labels.push_back(s % 2 == 0 ? 1.0f : 0.0f);
    batch_.numerics = Random(kSamples * kNumbers);
    for (size_t t = 0; t < model_->tables().size(); ++t)
      values_.push_back(Random(model_->SpanSize(t, batch_)));
    for (const std::vector<float>& values : values_) parameters_.emplace_back(values);
  }

  using Gradients = std::vector<std::vector<float>>;
  std::vector<float> Random(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    return values;
  }
  // NaN wherever nothing is written.
  Gradients Unwritten() const {
    Gradients gradients;
    for (const std::vector<float>& values : values_)
      gradients.emplace_back(values.size(), std::nanf(""));
    return gradients;
  }
  static std::vector<absl::Span<float>> SpansOf(Gradients& gradients) {
    std::vector<absl::Span<float>> spans;
    for (std::vector<float>& values : gradients) spans.push_back(absl::MakeSpan(values));
    return spans;
  }

  std::mt19937 random_{7};
  CpuDevice device_;
  std::unique_ptr<TrainingModel> model_;
  Batch batch_;
  Gradients values_;
  std::vector<absl::Span<const float>> parameters_;
};

TEST_F(MicroBatchesTest, SumsThePartsGradientsInOrder) {
  for (const uint32_t parts : {0u, 1u, 2u, 3u, kSamples, kSamples + 2}) {
    SCOPED_TRACE(parts);
    const uint32_t real = std::min(std::max(parts, 1u), kSamples);
    Gradients expected;
    double expected_loss = 0;
    for (uint32_t part = 0; part < real; ++part) {
      Batch slice;
      SliceBatch(batch_, ShareOf(kSamples, part, real), &slice);
      Gradients of_part = Unwritten();
      expected_loss +=
          model_->ComputeGradients(slice, parameters_, kScale, SpansOf(of_part))->loss_sum;
      if (part == 0) {
        expected = of_part;
        continue;
      }
      for (size_t t = 0; t < expected.size(); ++t) {
        for (size_t i = 0; i < expected[t].size(); ++i) expected[t][i] += of_part[t][i];
      }
    }
    MicroBatches micro_batches(parts);
    // The second pass reuses the memory.
    for (int time = 0; time < 2; ++time) {
      Gradients gradients = Unwritten(), sunk = Unwritten();
      std::vector<int> sinks(gradients.size());
      const auto loss = micro_batches.ComputeGradients(
          *model_, batch_, parameters_, kScale, SpansOf(gradients), {.sink = [&](size_t table) {
            ++sinks[table];
            sunk[table] = gradients[table];
          }});
      ASSERT_TRUE(loss.ok()) << loss.status();
      EXPECT_EQ(gradients, expected);
      EXPECT_EQ(sunk, expected);
      EXPECT_EQ(sinks, std::vector<int>(sinks.size(), 1));
      EXPECT_EQ(loss->loss_sum, expected_loss);
      EXPECT_EQ(loss->samples, kSamples);
    }
  }
}

TEST_F(MicroBatchesTest, FailingGateEndsTheComputation) {
  Gradients gradients = Unwritten();
  int opened = 0;
  const size_t tables = values_.size();
  // Fails in the second part.
  const auto gate = [&](size_t) {
    return ++opened > static_cast<int>(tables) ? absl::CancelledError("enough") : absl::OkStatus();
  };
  const auto result = MicroBatches(2).ComputeGradients(*model_, batch_, parameters_, kScale,
                                                       SpansOf(gradients), {.gate = gate});
  EXPECT_EQ(result.status(), absl::CancelledError("enough"));
}

}  // namespace
}  // namespace pawl
