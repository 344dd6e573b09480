// Tests steps with 16-bit factors, loss scaling and activation recomputation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/job/model_layers.h"
#include "gtest/gtest.h"
#include "worker/model/testing/model_cases.h"
#include "worker/model/testing/model_test_util.h"
#include "worker/model/testing/test_devices.h"
#include "worker/model/training_model.h"

namespace pawl {
namespace {

class TrainingPrecisionTest : public ::testing::TestWithParam<std::tuple<ModelCase, TestDevice>> {
 protected:
  TrainingPrecisionTest()
      : batch_(RandomBatch(test_case(), 60, 20, random_)),
        parameters_(*ModelOf(JobOf(test_case().model)), batch_, 0),
        none_(parameters_) {
    parameters_.Randomize(0.4f, random_);
  }

  const ModelCase& test_case() const { return std::get<0>(GetParam()); }
  std::unique_ptr<TrainingModel> ModelOf(const Job& job) {
    auto model = TrainingModel::Create(job, test_case().shape, *device_);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  Job JobWith(ElementType compute, float loss_scale = 0) const {
    Job job = JobOf(test_case().model);
    job.mutable_precision()->set_compute(compute);
    job.mutable_precision()->set_loss_scale(loss_scale);
    return job;
  }
  TableValues Gradients(const Job& job, float gradient_scale, LossSum* loss = nullptr) {
    TableValues gradients(none_);
    const auto result = ModelOf(job)->ComputeGradients(batch_, parameters_.spans(), gradient_scale,
                                                       gradients.mutable_spans());
    EXPECT_TRUE(result.ok()) << result.status();
    if (loss != nullptr) *loss = *result;
    return gradients;
  }
  // The largest difference between elements, relative to the largest element.
  double Difference(const TableValues& a, const TableValues& b) const {
    double largest = 0, difference = 0;
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t i = 0; i < a[t].size(); ++i) {
        largest = std::max<double>(largest, std::abs(a[t][i]));
        if (!(std::abs(a[t][i] - b[t][i]) <= difference)) difference = std::abs(a[t][i] - b[t][i]);
      }
    }
    return difference / largest;
  }
  bool MultipliesMatrices() const {
    return test_case().shape.numeric_count > 0 ||
           !LayersOf(JobOf(test_case().model).model(), test_case().shape.label_count).empty();
  }

  const std::unique_ptr<Device> device_ = std::get<1>(GetParam()).open();
  std::mt19937 random_{7};
  const Batch batch_;
  TableValues parameters_;
  const TableValues none_;
};

TEST_P(TrainingPrecisionTest, Float32EqualsNoPrecision) {
  EXPECT_TRUE(Gradients(JobWith(FLOAT32), 0.5f) == Gradients(JobOf(test_case().model), 0.5f));
}

TEST_P(TrainingPrecisionTest, SixteenBitFactorsAreCloseAndRepeatable) {
  const TableValues exact = Gradients(JobWith(FLOAT32), 0.05f);
  for (const auto& [type, bound] : {std::pair(BFLOAT16, 0.06), std::pair(FLOAT16, 0.01)}) {
    LossSum loss;
    const TableValues gradients = Gradients(JobWith(type), 0.05f, &loss);
    EXPECT_LE(Difference(exact, gradients), bound) << ElementType_Name(type);
    if (MultipliesMatrices()) {
      EXPECT_GT(Difference(exact, gradients), 0);
    }
    EXPECT_TRUE(Gradients(JobWith(type), 0.05f) == gradients);
    EXPECT_EQ(loss.loss_scale, type == FLOAT16 ? FirstLossScale(Precision()) : 1);
  }
}

// A step that works with one scale works with all smaller ones.
TEST_P(TrainingPrecisionTest, NonFiniteGradientsAreRecomputedWithAQuarterScale) {
  // Beyond 65504, the largest number of FLOAT16, with the first scale.
  constexpr float kGradientScale = 1000;
  LossSum loss;
  const TableValues gradients = Gradients(JobWith(FLOAT16, 16777216), kGradientScale, &loss);
  for (size_t t = 0; t < gradients.size(); ++t) {
    for (const float gradient : gradients[t]) ASSERT_TRUE(std::isfinite(gradient));
  }
  EXPECT_LE(Difference(Gradients(JobWith(FLOAT32), kGradientScale), gradients), 0.01);
  if (!MultipliesMatrices()) return;
  ASSERT_LT(loss.loss_scale, 16777216);
  EXPECT_EQ(std::remainder(std::log2(loss.loss_scale), 2), 0) << loss.loss_scale;
  // The resulting scale is the first possible one.
  LossSum again;
  EXPECT_TRUE(Gradients(JobWith(FLOAT16, loss.loss_scale), kGradientScale, &again) == gradients);
  EXPECT_EQ(again.loss_scale, loss.loss_scale);
  EXPECT_EQ(again.loss_sum, loss.loss_sum);
  Gradients(JobWith(FLOAT16, loss.loss_scale * 4), kGradientScale, &again);
  EXPECT_EQ(again.loss_scale, loss.loss_scale);
}

TEST_P(TrainingPrecisionTest, TablesReachTheSinkOnceAndGatesOpenOnce) {
  const auto model = ModelOf(JobWith(FLOAT16, 16777216));
  TableValues gradients(none_), seen(none_);
  std::vector<int> sunk(none_.size()), opened(none_.size());
  const auto result =
      model->ComputeGradients(batch_, parameters_.spans(), 1000, gradients.mutable_spans(),
                              {.sink =
                                   [&](size_t table) {
                                     ++sunk[table];
                                     seen[table] = gradients[table];
                                     for (const float gradient : gradients[table])
                                       ASSERT_TRUE(std::isfinite(gradient));
                                   },
                               .gate =
                                   [&](size_t table) {
                                     ++opened[table];
                                     return absl::OkStatus();
                                   }});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(sunk, std::vector<int>(sunk.size(), 1));
  EXPECT_EQ(opened, std::vector<int>(opened.size(), 1));
  EXPECT_TRUE(seen == gradients);
}

TEST_P(TrainingPrecisionTest, GradientsThatStayNonFiniteAreRefused) {
  const auto model = ModelOf(JobWith(FLOAT16, 64));
  TableValues gradients(none_);
  int sunk = 0;
  const auto result =
      model->ComputeGradients(batch_, parameters_.spans(), std::numeric_limits<float>::infinity(),
                              gradients.mutable_spans(), {.sink = [&](size_t) { ++sunk; }});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(result.status().message().find("even with a loss scale of 1"), absl::string_view::npos)
      << result.status();
  EXPECT_EQ(sunk, 0);
}

TEST_P(TrainingPrecisionTest, NonFiniteLossIsLeftToTheCaller) {
  TableValues bad(parameters_);
  for (size_t t = 0; t < bad.size(); ++t) {
    for (float& value : bad[t]) value = std::numeric_limits<float>::quiet_NaN();
  }
  TableValues gradients(none_);
  int tries = 0;
  const auto result =
      ModelOf(JobWith(FLOAT16, 64))
          ->ComputeGradients(batch_, bad.spans(), 1, gradients.mutable_spans(), {.try_gate = [&] {
                               ++tries;
                               return absl::OkStatus();
                             }});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(std::isfinite(result->loss_sum));
  EXPECT_EQ(tries, 0);
}

TEST_P(TrainingPrecisionTest, TryGateEndsTheSearchForAScale) {
  if (!MultipliesMatrices()) return;
  const auto model = ModelOf(JobWith(FLOAT16, 16777216));
  TableValues gradients(none_);
  int sunk = 0, tries = 0;
  const auto result = model->ComputeGradients(
      batch_, parameters_.spans(), 1000, gradients.mutable_spans(),
      {.sink = [&](size_t) { ++sunk; },
       .try_gate =
           [&] { return ++tries == 2 ? absl::CancelledError("enough") : absl::OkStatus(); }});
  EXPECT_EQ(result.status(), absl::CancelledError("enough"));
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(sunk, 0);
}

TEST_P(TrainingPrecisionTest, RecomputedLayersGiveTheSameBits) {
  // The emulator is slow.
  const bool is_slow = !std::get<1>(GetParam()).has_cpu_bits;
  for (const ElementType type : {FLOAT32, BFLOAT16}) {
    if (is_slow && type == BFLOAT16) continue;
    const Job kept = JobWith(type);
    LossSum expected;
    const TableValues gradients = Gradients(kept, 0.5f, &expected);
    std::vector<std::vector<std::string>> choices = {{"all"}};
    const std::vector<std::string> layers = LayersOf(kept.model(), test_case().shape.label_count);
    for (size_t i = 0; i < layers.size() && !is_slow; ++i) {
      choices.push_back({layers[i]});
      if (i > 0) choices.push_back({layers[i - 1], layers[i]});
    }
    for (const std::vector<std::string>& choice : choices) {
      Job job = kept;
      for (const std::string& layer : choice) job.mutable_model()->add_recompute(layer);
      LossSum loss;
      EXPECT_TRUE(Gradients(job, 0.5f, &loss) == gradients) << choice[0];
      EXPECT_EQ(loss.loss_sum, expected.loss_sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainingPrecisionTest,
    ::testing::Combine(::testing::ValuesIn(ModelCases()), ::testing::ValuesIn(TestDevices())),
    [](const ::testing::TestParamInfo<std::tuple<ModelCase, TestDevice>>& info) {
      return std::get<0>(info.param).name + "On" + std::get<1>(info.param).name;
    });

// Gradients too small for FLOAT16 survive with a scale, and are lost without one.
TEST(LossScaleTest, ScaleKeepsSmallGradients) {
  const ModelCase test_case{"Mlp", "mlp { hidden: 8 hidden: 6 }", {7, 0}, LOGISTIC};
  CpuDevice device;
  std::mt19937 random(3);
  const Batch batch = RandomBatch(test_case, 64, 0, random);
  const auto norm = [&](ElementType compute, float loss_scale) {
    Job job = JobOf(test_case.model);
    job.mutable_precision()->set_compute(compute);
    job.mutable_precision()->set_loss_scale(loss_scale);
    const auto model = TrainingModel::Create(job, test_case.shape, device).value();
    TableValues parameters(*model, batch, 0), gradients = parameters;
    std::mt19937 same(5);
    parameters.Randomize(0.3f, same);
    EXPECT_TRUE(
        model->ComputeGradients(batch, parameters.spans(), 1e-8f, gradients.mutable_spans()).ok());
    double sum = 0;
    // The first layer's weights.
    for (const float gradient : gradients[0]) sum += double{gradient} * gradient;
    return std::sqrt(sum);
  };
  const double exact = norm(FLOAT32, 0);
  EXPECT_GT(exact, 0);
  EXPECT_NEAR(norm(FLOAT16, 0), exact, 0.01 * exact);
  EXPECT_EQ(norm(FLOAT16, 1), 0);
}

// Quartering 2^15, the default, leads to 2; 1 is tried nevertheless.
TEST(LossScaleTest, ScaleOneIsTriedLast) {
  const ModelCase test_case{"Mlp", "mlp { hidden: 8 hidden: 6 }", {7, 0}, LOGISTIC};
  CpuDevice device;
  std::mt19937 random(3);
  const Batch batch = RandomBatch(test_case, 64, 0, random);
  const auto compute = [&](float loss_scale, float gradient_scale, LossSum& loss) {
    Job job = JobOf(test_case.model);
    job.mutable_precision()->set_compute(FLOAT16);
    job.mutable_precision()->set_loss_scale(loss_scale);
    const auto model = TrainingModel::Create(job, test_case.shape, device).value();
    TableValues parameters(*model, batch, 0), gradients = parameters;
    std::mt19937 same(5);
    parameters.Randomize(0.3f, same);
    const auto result = model->ComputeGradients(batch, parameters.spans(), gradient_scale,
                                                gradients.mutable_spans());
    if (result.ok()) loss = *result;
    return result.ok();
  };
  // About the largest scale that works with a loss scale of 1.
  float gradient_scale = 1;
  LossSum loss;
  while (compute(1, gradient_scale * 1.5f, loss)) gradient_scale *= 1.5f;
  EXPECT_FALSE(compute(1, gradient_scale * 2, loss));
  ASSERT_TRUE(compute(0, gradient_scale, loss));
  EXPECT_EQ(loss.loss_scale, 1);
}

TEST(RecomputeTest, RecomputingSavesMemory) {
  const ModelCase test_case{"Mlp", "mlp { hidden: [64, 64, 64, 64, 64, 64] }", {8, 0}, LOGISTIC};
  std::mt19937 random(3);
  const Batch batch = RandomBatch(test_case, 256, 0, random);
  CpuDevice device;
  const auto peak = [&](const std::string& recompute) {
    const auto model =
        TrainingModel::Create(JobOf(test_case.model + recompute), test_case.shape, device).value();
    TableValues parameters(*model, batch, 0.1f), gradients = parameters;
    EXPECT_TRUE(
        model->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans()).ok());
    return model->peak_bytes();
  };
  constexpr size_t kMatrix = 256 * 64 * sizeof(float);
  const size_t kept = peak(""), all = peak(" recompute: 'all'"),
               some = peak(" recompute: ['mlp/1', 'mlp/3']");
  // Six outputs and two gradients; of recomputed outputs only two at a time, in the gradients'
  // memory.
  EXPECT_GE(kept, 8 * kMatrix);
  EXPECT_LE(kept, 9 * kMatrix);
  EXPECT_LE(all, 5 * kMatrix);
  EXPECT_LT(some, kept);
  EXPECT_LT(all, some);
}

}  // namespace
}  // namespace pawl
