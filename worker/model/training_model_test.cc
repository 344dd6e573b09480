#include "worker/model/training_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/job/model_layers.h"
#include "gtest/gtest.h"
#include "worker/model/testing/model_cases.h"
#include "worker/model/testing/model_test_util.h"
#include "worker/model/testing/reference_loss.h"
#include "worker/model/testing/test_devices.h"

namespace pawl {
namespace {

ReferenceParameters InDouble(const TrainingModel& model, const TableValues& parameters) {
  ReferenceParameters reference;
  for (size_t t = 0; t < parameters.size(); ++t) {
    reference[model.tables()[t].name()].assign(parameters[t].begin(), parameters[t].end());
  }
  return reference;
}

class TrainingModelTest : public ::testing::TestWithParam<std::tuple<ModelCase, TestDevice>> {
 protected:
  void SetUp() override { model_ = ModelOn(*device_); }

  std::unique_ptr<TrainingModel> ModelOn(Device& device) {
    auto model = TrainingModel::Create(job_, test_case().shape, device);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  const ModelCase& test_case() const { return std::get<0>(GetParam()); }
  const TestDevice& test_device() const { return std::get<1>(GetParam()); }

  const Job job_ = JobOf(test_case().model);
  const std::unique_ptr<Device> device_ = test_device().open();
  std::unique_ptr<TrainingModel> model_;
  std::mt19937 random_{7};
};

TEST_P(TrainingModelTest, LossMatchesTheReference) {
  EXPECT_EQ(model_->loss(), test_case().loss);
  const Batch batch = RandomBatch(test_case(), 37, 11, random_);
  TableValues parameters(*model_, batch, 0), gradients = parameters;
  parameters.Randomize(0.4f, random_);
  const auto result =
      model_->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 37u);
  const double expected = ReferenceLossSum(job_.model(), test_case().loss, model_->layout(), batch,
                                           InDouble(*model_, parameters));
  EXPECT_NEAR(result->loss_sum, expected, 2e-6 * expected);
}

TEST_P(TrainingModelTest, PrefetchedBatchesGiveTheSameBits) {
  Batch batches[] = {
      RandomBatch(test_case(), 9, 5, random_), RandomBatch(test_case(), 31, 8, random_),
      RandomBatch(test_case(), 4, 3, random_), RandomBatch(test_case(), 17, 6, random_)};
  std::vector<TableValues> parameters;
  for (const Batch& batch : batches) {
    parameters.emplace_back(*model_, batch, 0);
    parameters.back().Randomize(0.4f, random_);
  }
  const auto gradients_of = [&](TrainingModel& model, size_t i, const Batch* next) {
    TableValues gradients(model, batches[i], 0);
    const auto result = model.ComputeGradients(batches[i], parameters[i].spans(), 1,
                                               gradients.mutable_spans(), {.next = next});
    EXPECT_TRUE(result.ok()) << result.status();
    return gradients;
  };
  std::vector<TableValues> expected;
  for (size_t i = 0; i < std::size(batches); ++i)
    expected.push_back(gradients_of(*ModelOn(*device_), i, nullptr));
  for (size_t i = 0; i < std::size(batches); ++i) {
    const Batch* const next = i + 1 < std::size(batches) ? &batches[i + 1] : nullptr;
    EXPECT_TRUE(gradients_of(*model_, i, next) == expected[i]) << i;
  }
  // A prefetched batch that was not the next one must not be used after it has changed.
  gradients_of(*model_, 0, &batches[1]);
  gradients_of(*model_, 2, nullptr);
  batches[1] = batches[3];
  parameters[1] = parameters[3];
  EXPECT_TRUE(gradients_of(*model_, 1, nullptr) == expected[3]);
}

TEST_P(TrainingModelTest, RecordedStepsGiveTheSameBits) {
  const auto recording =
      TrainingModel::Create(job_, test_case().shape, *device_, /*records_steps=*/true).value();
  bool is_dense = true;
  for (const TableSpec& table : recording->tables()) is_dense = is_dense && table.kind() == DENSE;
  constexpr int kSteps = 12;
  Batch batches[2];
  for (int i = 0; i < (is_dense ? 2 : 1) * kSteps; ++i) {
    SCOPED_TRACE(i);
    // The last step of an epoch is shorter.
    const auto random_batch = [&](int step) {
      return RandomBatch(test_case(), step % 6 == 5 ? 7 : 20, 5, random_);
    };
    if (i == 0) batches[0] = random_batch(0);
    // Recordings of steps with another scale, or from before the memory moved, must not be used.
    const float scale = i < kSteps ? 0.5f : 0.25f;
    // The emulator would take long.
    if (i == kSteps && test_device().has_cpu_bits) {
      const Batch large = RandomBatch(test_case(), 200000, 5, random_);
      TableValues parameters(*model_, large, 0);
      Predictions predictions;
      ASSERT_TRUE(recording->Predict(large, parameters.spans(), &predictions).ok());
    }
    batches[(i + 1) % 2] = random_batch(i + 1);
    const Batch& batch = batches[i % 2];
    TableValues parameters(*model_, batch, 0);
    parameters.Randomize(0.4f, random_);
    TableValues expected = parameters, actual = parameters;
    std::vector<size_t> order;
    std::vector<size_t> expected_order;
    const auto plain = model_->ComputeGradients(
        batch, parameters.spans(), scale, expected.mutable_spans(),
        {.sink = [&expected_order](size_t table) { expected_order.push_back(table); }});
    const auto played =
        recording->ComputeGradients(batch, parameters.spans(), scale, actual.mutable_spans(),
                                    {.sink = [&order](size_t table) { order.push_back(table); },
                                     .next = &batches[(i + 1) % 2]});
    ASSERT_TRUE(plain.ok() && played.ok()) << plain.status() << played.status();
    EXPECT_EQ(played->loss_sum, plain->loss_sum);
    EXPECT_TRUE(actual == expected);
    EXPECT_EQ(order, expected_order);
    // All but the first, which allocates the memory, and the first ones of each buffer and size.
    if (i == kSteps - 1) {
      EXPECT_EQ(recording->played_steps(),
                is_dense && !device_->SharesHostMemory() ? kSteps - 4u : 0u);
    }
  }
  if (is_dense && !device_->SharesHostMemory()) {
    EXPECT_GE(recording->played_steps(), 2 * kSteps - 10u);
  }
}

TEST_P(TrainingModelTest, DenseTablesOnTheDeviceGiveTheSameBits) {
  for (const bool records : {false, true}) {
    const auto staying =
        TrainingModel::Create(job_, test_case().shape, *device_, records, /*dense_on_device=*/true)
            .value();
    const auto stream = device_->CreateStream().value();
    const std::vector<TableSpec>& tables = staying->tables();
    const Batch batch = RandomBatch(test_case(), 20, 5, random_);
    TableValues gradients(*model_, batch, 0);
    // Two parameter buffers, which alternate.
    std::vector<absl::Span<const float>> spans[2];
    std::vector<absl::Span<float>> gradient_spans = gradients.mutable_spans();
    std::vector<float*> places[2];
    std::vector<void*> allocated;
    for (size_t t = 0; t < tables.size(); ++t) {
      const size_t count = staying->SpanSize(t, batch);
      const auto allocate = [&] {
        allocated.push_back(device_->Allocate(count * sizeof(float)).value());
        return static_cast<float*>(allocated.back());
      };
      for (const size_t place : {0, 1}) {
        places[place].push_back(tables[t].kind() == DENSE ? allocate() : nullptr);
        spans[place].emplace_back(places[place][t], count);
      }
      if (tables[t].kind() == DENSE) gradient_spans[t] = absl::MakeSpan(allocate(), count);
    }
    for (size_t step = 0; step < 7; ++step) {
      TableValues parameters(*model_, batch, 0);
      parameters.Randomize(0.4f, random_);
      TableValues expected = parameters;
      ASSERT_TRUE(
          model_->ComputeGradients(batch, parameters.spans(), 0.5f, expected.mutable_spans()).ok());
      const size_t place = step % 2;
      // The parameters arrive when the gate opens.
      const auto gate = [&](size_t table) {
        if (places[place][table] == nullptr) return absl::OkStatus();
        stream->CopyToDevice(parameters[table].data(), parameters[table].size() * sizeof(float),
                             places[place][table]);
        return stream->Synchronize();
      };
      for (size_t t = 0; t < tables.size(); ++t) {
        if (places[place][t] == nullptr) spans[place][t] = parameters[t];
      }
      // A final gradient is in place already.
      const auto sink = [&](size_t table) {
        if (places[place][table] == nullptr) return;
        stream->CopyToHost(gradient_spans[table].data(), gradients[table].size() * sizeof(float),
                           gradients[table].data());
        ASSERT_TRUE(stream->Synchronize().ok());
      };
      ASSERT_TRUE(staying
                      ->ComputeGradients(batch, spans[place], 0.5f, gradient_spans,
                                         {.sink = sink, .gate = gate})
                      .ok());
      EXPECT_TRUE(gradients == expected) << step;
    }
    // A prediction takes all parameters from host memory.
    TableValues parameters(*model_, batch, 0);
    parameters.Randomize(0.4f, random_);
    Predictions expected, predictions;
    ASSERT_TRUE(model_->Predict(batch, parameters.spans(), &expected).ok());
    ASSERT_TRUE(staying->Predict(batch, parameters.spans(), &predictions).ok());
    EXPECT_EQ(predictions.scores, expected.scores);
    EXPECT_EQ(staying->played_steps() > 0, staying->records_steps());
    for (void* const data : allocated) device_->Free(data);
  }
}

TEST_P(TrainingModelTest, NextBatchIsOnTheDeviceBeforeItsTurn) {
  if (device_->SharesHostMemory()) GTEST_SKIP() << "the device reads host memory";
  if (test_case().shape.numeric_count == 0) GTEST_SKIP() << "the test changes numeric inputs";
  const Batch first = RandomBatch(test_case(), 9, 5, random_);
  Batch next = RandomBatch(test_case(), 9, 5, random_);
  TableValues parameters(*model_, first, 0), of_next(*model_, next, 0);
  parameters.Randomize(0.4f, random_);
  of_next.Randomize(0.4f, random_);
  TableValues gradients = parameters, expected = of_next, actual = of_next;
  ASSERT_TRUE(
      ModelOn(*device_)->ComputeGradients(next, of_next.spans(), 1, expected.mutable_spans()).ok());
  ASSERT_TRUE(model_
                  ->ComputeGradients(first, parameters.spans(), 1, gradients.mutable_spans(),
                                     {.next = &next})
                  .ok());
  // Violates the contract on purpose, to show which numbers are used.
  for (float& number : next.numerics) number += 1;
  ASSERT_TRUE(model_->ComputeGradients(next, of_next.spans(), 1, actual.mutable_spans()).ok());
  EXPECT_TRUE(actual == expected);
}

// The reference is in double, so the central difference is good to about 1e-7; the rest is the
// rounding of the float32 backward pass.
TEST_P(TrainingModelTest, GradientsMatchNumericDifferences) {
  constexpr double kEpsilon = 1e-6;
  constexpr double kBound = 1e-5;
  constexpr float kScale = 0.37f;
  const Batch batch = RandomBatch(test_case(), 9, 5, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.5f, random_);
  TableValues gradients(*model_, batch, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(
      model_->ComputeGradients(batch, parameters.spans(), kScale, gradients.mutable_spans()).ok());

  ReferenceParameters reference = InDouble(*model_, parameters);
  const auto loss = [&] {
    return ReferenceLossSum(job_.model(), test_case().loss, model_->layout(), batch, reference);
  };
  for (size_t t = 0; t < parameters.size(); ++t) {
    std::vector<double>& table = reference[model_->tables()[t].name()];
    for (size_t i = 0; i < table.size(); ++i) {
      const double value = table[i];
      table[i] = value + kEpsilon;
      const double above = loss();
      table[i] = value - kEpsilon;
      const double below = loss();
      table[i] = value;
      const double expected = kScale * (above - below) / (2 * kEpsilon);
      ASSERT_NEAR(gradients[t][i], expected, kBound * (1 + std::abs(expected)))
          << model_->tables()[t].name() << "[" << i << "]";
    }
  }
}

TEST_P(TrainingModelTest, PredictionsMatchTheReference) {
  const Batch batch = RandomBatch(test_case(), 30, 9, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.4f, random_);
  const ReferenceParameters reference = InDouble(*model_, parameters);
  Predictions predictions;
  ASSERT_TRUE(model_->Predict(batch, parameters.spans(), &predictions).ok());
  EvaluationSums expected;
  for (uint32_t s = 0; s < batch.samples; ++s) {
    const float label = batch.labels[s * batch.label_count];
    const std::vector<double> outputs =
        ReferenceOutputs(job_.model(), model_->layout(), batch, reference, s);
    switch (test_case().loss) {
      case LOGISTIC:
        EXPECT_NEAR(predictions.scores[s], outputs[0], 1e-5);
        EXPECT_NEAR(predictions.probabilities[s], 1 / (1 + std::exp(-outputs[0])), 1e-6);
        expected.correct += (outputs[0] > 0) == (label == 1);
        expected.logloss_sum += std::log1p(std::exp(label == 1 ? -outputs[0] : outputs[0]));
        break;
      case SQUARED:
        EXPECT_NEAR(predictions.scores[s], outputs[0], 1e-5);
        expected.squared_error_sum += (outputs[0] - label) * (outputs[0] - label);
        break;
      default: {
        const size_t best = std::max_element(outputs.begin(), outputs.end()) - outputs.begin();
        EXPECT_EQ(predictions.scores[s], best);
        expected.correct += best == label;
        double normalizer = 0;
        for (const double output : outputs) normalizer += std::exp(output);
        for (size_t c = 0; c < outputs.size(); ++c) {
          EXPECT_NEAR(predictions.probabilities[s * outputs.size() + c],
                      std::exp(outputs[c]) / normalizer, 1e-6);
        }
        expected.logloss_sum += std::log(normalizer) - outputs[static_cast<size_t>(label)];
      }
    }
  }
  EXPECT_EQ(predictions.scores.size(), 30u);
  EXPECT_EQ(predictions.sums.samples, 30u);
  EXPECT_EQ(predictions.sums.correct, expected.correct);
  EXPECT_NEAR(predictions.sums.logloss_sum, expected.logloss_sum,
              1e-5 * (1 + expected.logloss_sum));
  EXPECT_NEAR(predictions.sums.squared_error_sum, expected.squared_error_sum,
              1e-5 * (1 + expected.squared_error_sum));
}

TEST_P(TrainingModelTest, SameInputsGiveTheSameBits) {
  const Batch batch = RandomBatch(test_case(), 300, 40, random_),
              other = RandomBatch(test_case(), 17, 3, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.4f, random_);
  TableValues first(*model_, batch, 0), second = first, third = first;
  const auto first_loss =
      model_->ComputeGradients(batch, parameters.spans(), 0.5f, first.mutable_spans());
  // Another batch in between, which leaves other data in the workspace.
  TableValues other_parameters(*model_, other, 1), other_gradients = other_parameters;
  ASSERT_TRUE(
      model_->ComputeGradients(other, other_parameters.spans(), 1, other_gradients.mutable_spans())
          .ok());
  const auto second_loss =
      model_->ComputeGradients(batch, parameters.spans(), 0.5f, second.mutable_spans());
  EXPECT_EQ(first_loss->loss_sum, second_loss->loss_sum);
  EXPECT_TRUE(first == second);
  Predictions predictions, cpu_predictions;
  ASSERT_TRUE(model_->Predict(batch, parameters.spans(), &predictions).ok());
  if (!test_device().has_cpu_bits) return;
  CpuDevice cpu;
  const std::unique_ptr<TrainingModel> cpu_model = ModelOn(cpu);
  const auto third_loss =
      cpu_model->ComputeGradients(batch, parameters.spans(), 0.5f, third.mutable_spans());
  EXPECT_EQ(first_loss->loss_sum, third_loss->loss_sum);
  EXPECT_TRUE(first == third);
  ASSERT_TRUE(cpu_model->Predict(batch, parameters.spans(), &cpu_predictions).ok());
  EXPECT_EQ(predictions.scores, cpu_predictions.scores);
}

TEST_P(TrainingModelTest, ConcurrentModelsGiveTheSameBits) {
  const Batch batch = RandomBatch(test_case(), 200, 40, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.4f, random_);
  TableValues alone(*model_, batch, 0);
  ASSERT_TRUE(model_->ComputeGradients(batch, parameters.spans(), 1, alone.mutable_spans()).ok());
  constexpr int kThreads = 4;
  std::vector<TableValues> together(kThreads, TableValues(*model_, batch, 0));
  std::vector<std::thread> threads;
  for (TableValues& gradients : together) {
    threads.emplace_back([&] {
      const auto model = TrainingModel::Create(job_, test_case().shape, *device_);
      for (int run = 0; run < 3; ++run) {
        EXPECT_TRUE((*model)
                        ->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans())
                        .ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TableValues& gradients : together) EXPECT_TRUE(gradients == alone);
}

TEST_P(TrainingModelTest, EmptyBatchHasZeroGradients) {
  Batch batch = RandomBatch(test_case(), 0, 1, random_);
  TableValues parameters(*model_, batch, 1);
  TableValues gradients(*model_, batch, 5), zero(*model_, batch, 0);
  const auto result =
      model_->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples, 0u);
  EXPECT_EQ(result->loss_sum, 0);
  EXPECT_TRUE(gradients == zero);
  Predictions predictions;
  ASSERT_TRUE(model_->Predict(batch, parameters.spans(), &predictions).ok());
  EXPECT_EQ(predictions.sums.samples, 0u);
}

TEST_P(TrainingModelTest, SinkGetsEachTableOnceWhenItIsFinal) {
  const Batch batch = RandomBatch(test_case(), 20, 6, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.4f, random_);
  TableValues gradients(*model_, batch, 0), seen = gradients;
  std::vector<int> calls(model_->tables().size());
  std::vector<size_t> layers;
  ASSERT_TRUE(model_
                  ->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans(),
                                     {.sink =
                                          [&](size_t table) {
                                            ++calls[table];
                                            seen[table] = gradients[table];
                                            const std::string& name =
                                                model_->tables()[table].name();
                                            if (absl::EndsWith(name, "/weight"))
                                              layers.push_back(table);
                                          }})
                  .ok());
  EXPECT_EQ(calls, std::vector<int>(calls.size(), 1));
  EXPECT_TRUE(seen == gradients);
  // The last layers come first.
  EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend()));
}

TEST_P(TrainingModelTest, TablesAreNotReadBeforeTheirGateOpens) {
  const Batch batch = RandomBatch(test_case(), 20, 15, random_);
  TableValues parameters(*model_, batch, 0);
  parameters.Randomize(0.3f, random_);
  TableValues expected(*model_, batch, -1);
  ASSERT_TRUE(
      model_->ComputeGradients(batch, parameters.spans(), 0.5f, expected.mutable_spans()).ok());

  TableValues late(*model_, batch, std::numeric_limits<float>::quiet_NaN());
  std::vector<size_t> opened;
  const auto gate = [&](size_t table) {
    late[table] = parameters[table];
    opened.push_back(table);
    return absl::OkStatus();
  };
  // Spans stay valid when values are copied into them.
  TableValues gradients(*model_, batch, -1);
  ASSERT_TRUE(
      model_->ComputeGradients(batch, late.spans(), 0.5f, gradients.mutable_spans(), {.gate = gate})
          .ok());
  EXPECT_TRUE(gradients == expected);
  // In the order of the tables, each once.
  EXPECT_TRUE(std::is_sorted(opened.begin(), opened.end()));
  EXPECT_EQ(opened.size(), model_->tables().size());
}

TEST_P(TrainingModelTest, FailingGateEndsTheStepWithoutGradients) {
  const Batch batch = RandomBatch(test_case(), 20, 15, random_);
  TableValues parameters(*model_, batch, 0.1f);
  TableValues gradients(*model_, batch, -1);
  const TableValues untouched(*model_, batch, -1);
  int finished = 0;
  const auto result =
      model_->ComputeGradients(batch, parameters.spans(), 0.5f, gradients.mutable_spans(),
                               {.sink = [&](size_t) { ++finished; },
                                .gate = [&](size_t) { return absl::CancelledError("enough"); }});
  EXPECT_EQ(result.status(), absl::CancelledError("enough"));
  EXPECT_EQ(finished, 0);
  EXPECT_TRUE(gradients == untouched);
}

TEST_P(TrainingModelTest, TablesHaveTheirShapesInitializersAndOptimizers) {
  Job job = job_;
  job.mutable_sparse_optimizer()->mutable_adagrad()->set_learning_rate(0.5f);
  const auto model = TrainingModel::Create(job, test_case().shape, *device_);
  for (const TableSpec& table : (*model)->tables()) {
    const bool is_weight =
        absl::EndsWith(table.name(), "/weight") ||
        (absl::StartsWith(table.name(), "cross/") && !absl::EndsWith(table.name(), "/bias"));
    if (table.kind() == SPARSE) {
      EXPECT_TRUE(table.optimizer().has_adagrad());
      const bool has_vectors =
          absl::StartsWith(table.name(), "embedding") && !absl::EndsWith(table.name(), "/linear");
      EXPECT_EQ(table.initializer().has_normal(), has_vectors);
      if (has_vectors) {
        EXPECT_EQ(table.initializer().normal().stddev(), 0.01f);
        const bool has_weight = !job.model().has_dlrm() && !job.model().has_dcn() &&
                                !job.model().has_mmoe() && !job.model().has_din();
        EXPECT_EQ(table.initializer().zero_from(), has_weight ? table.row_width() - 1 : 0);
      }
      EXPECT_GE(table.row_width(), 1u);
    } else {
      EXPECT_TRUE(table.optimizer().has_sgd());
      EXPECT_EQ(table.initializer().has_xavier(), is_weight);
      EXPECT_EQ(table.shape_size(), is_weight ? 2 : 1);
    }
  }
}

TEST_P(TrainingModelTest, SpansOfAWrongSizeAreRefusedWithoutWrites) {
  const Batch batch = RandomBatch(test_case(), 5, 4, random_);
  TableValues parameters(*model_, batch, 0);
  for (size_t t = 0; t < model_->tables().size(); ++t) {
    TableValues gradients(*model_, batch, 9), untouched = gradients;
    std::vector<absl::Span<const float>> short_parameters = parameters.spans();
    short_parameters[t].remove_suffix(1);
    auto result = model_->ComputeGradients(batch, short_parameters, 1, gradients.mutable_spans());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(result.status().message(), model_->tables()[t].name()));
    std::vector<absl::Span<float>> short_gradients = gradients.mutable_spans();
    short_gradients[t].remove_suffix(1);
    result = model_->ComputeGradients(batch, parameters.spans(), 1, short_gradients);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(gradients == untouched);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainingModelTest,
    ::testing::Combine(::testing::ValuesIn(ModelCases()), ::testing::ValuesIn(TestDevices())),
    [](const ::testing::TestParamInfo<std::tuple<ModelCase, TestDevice>>& info) {
      return std::get<0>(info.param).name + "On" + std::get<1>(info.param).name;
    });

class TrainingModelCreateTest : public ::testing::Test {
 protected:
  // The error message, or "" without an error.
  std::string Refusal(const std::string& model, const DataShape& shape) {
    return Refusal(JobOf(model), shape);
  }
  std::string Refusal(const Job& job, const DataShape& shape) {
    const absl::Status status = TrainingModel::Create(job, shape, device_).status();
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  CpuDevice device_;
};

TEST_F(TrainingModelCreateTest, ImpossibleModelsAreRefusedNamingTheField) {
  const std::vector<std::pair<std::pair<std::string, DataShape>, std::string>> refusals = {
      {{"", {1, 1}}, "model:"},
      {{"logistic_regression {}", {0, 0}}, "model.logistic_regression:"},
      {{"fm {}", {0, 2}}, "model.fm.dim:"},
      {{"fm { dim: 4096 }", {0, 2}}, "model.fm.dim:"},
      {{"fm { dim: 4 init_stddev: -1 }", {0, 2}}, "model.fm.init_stddev:"},
      {{"fm { dim: 4 init_stddev: nan }", {0, 2}}, "model.fm.init_stddev:"},
      {{"fm { dim: 4 }", {3, 0}}, "model.fm:"},
      {{"fm { dim: 4 } loss: SOFTMAX_CROSS_ENTROPY", {0, 2}}, "model.loss:"},
      {{"wide_deep { hidden: 3 }", {0, 2}}, "model.wide_deep.dim:"},
      {{"wide_deep { dim: 2 hidden: 3 hidden: 0 }", {0, 2}}, "model.wide_deep.hidden[1]:"},
      {{"deepfm { dim: 2 hidden: 100000 }", {0, 2}}, "model.deepfm.hidden[0]:"},
      {{"deepfm { dim: 4095 }", {0, 4096}}, "model.deepfm:"},
      {{"deepfm { dim: 4 }", {2, 0}}, "model.deepfm:"},
      {{"dlrm { dim: 4 bottom: 8 bottom: 5 }", {2, 2}}, "model.dlrm.bottom:"},
      {{"dlrm { dim: 4 }", {2, 2}}, "model.dlrm.bottom:"},
      {{"dlrm { dim: 4 bottom: 4 }", {0, 2}}, "model.dlrm.bottom:"},
      {{"dlrm { dim: 4 top: 8 top: 1 }", {0, 2}}, "model.dlrm.top:"},
      {{"dlrm { dim: 4 }", {0, 1}}, "model.dlrm:"},
      {{"mlp { classes: 3 }", {0, 0}}, "model.mlp:"},
      {{"mlp { classes: 3 }", {4, 1}}, "model.mlp:"},
      {{"mlp { classes: 100000 }", {4, 0}}, "model.mlp.classes:"},
      {{"mlp { classes: 3 } loss: LOGISTIC", {4, 0}}, "model.loss:"},
      {{"mlp { classes: 1 } loss: SOFTMAX_CROSS_ENTROPY", {4, 0}}, "model.loss:"},
      {{"matrix_factorization { dim: 4 }", {0, 3}}, "model.matrix_factorization:"},
      {{"matrix_factorization { dim: 4 }", {1, 2}}, "model.matrix_factorization:"},
      {{"matrix_factorization { dim: 4 mean: inf }", {0, 2}}, "model.matrix_factorization.mean:"},
      {{"matrix_factorization {}", {0, 2}}, "model.matrix_factorization.dim:"},
  };
  for (const auto& [spec, prefix] : refusals) {
    const std::string refusal = Refusal(spec.first, spec.second);
    EXPECT_TRUE(absl::StartsWith(refusal, prefix)) << spec.first << " gave: " << refusal;
  }
}

TEST_F(TrainingModelCreateTest, MissingOptimizerIsRefused) {
  Job job = JobOf("fm { dim: 4 }");
  job.clear_optimizer();
  EXPECT_TRUE(absl::StartsWith(Refusal(job, {0, 2}), "optimizer:"));
}

TEST_F(TrainingModelCreateTest, SpecialOptionsReachTheTables) {
  const auto model = TrainingModel::Create(JobOf("deepfm { dim: 8 hidden: 32 init_stddev: 0.25 }"),
                                           {3, 5}, device_);
  std::vector<std::string> names;
  for (const TableSpec& table : (*model)->tables()) {
    names.push_back(table.name());
    if (table.name() == "embedding") {
      EXPECT_EQ(table.initializer().normal().stddev(), 0.25f);
      EXPECT_EQ(table.row_width(), 9u);
    }
    if (table.name() == "mlp/0/weight") {
      EXPECT_EQ(table.shape(0), 5u * 8 + 3);
      EXPECT_EQ(table.shape(1), 32u);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "linear/numeric", "bias", "mlp/0/weight",
                                             "mlp/0/bias", "mlp/1/weight", "mlp/1/bias"}));
}

// An optimizer that couples the elements of a row keeps weights and vectors apart. The gradients
// are the same.
TEST_F(TrainingModelCreateTest, WeightsAndVectorsShareRowsIfTheOptimizerAllows) {
  const ModelCase test_case{"", "deepfm { dim: 3 hidden: 4 }", {2, 3}, LOGISTIC};
  std::mt19937 random(5);
  const Batch batch = RandomBatch(test_case, 20, 7, random);
  const size_t keys = batch.keys[0].size();
  Job job = JobOf(test_case.model);
  const auto shared = TrainingModel::Create(job, test_case.shape, device_).value();
  TableValues of_shared(*shared, batch, 0), shared_gradients = of_shared;
  of_shared.Randomize(0.5f, random);
  ASSERT_TRUE(
      shared->ComputeGradients(batch, of_shared.spans(), 1, shared_gradients.mutable_spans()).ok());
  for (const char* optimizer :
       {"rowwise_adagrad { learning_rate: 0.1 }", "sgd { learning_rate: 0.1 } clip_norm: 1"}) {
    ASSERT_TRUE(
        google::protobuf::TextFormat::ParseFromString(optimizer, job.mutable_sparse_optimizer()));
    const auto apart = TrainingModel::Create(job, test_case.shape, device_).value();
    TableValues parameters(*apart, batch, 0), gradients = parameters;
    ASSERT_EQ(apart->tables()[0].name(), "linear");
    ASSERT_EQ(apart->tables()[1].name(), "embedding");
    ASSERT_EQ(shared->tables()[0].name(), "embedding");
    for (size_t k = 0; k < keys; ++k) {
      for (size_t d = 0; d < 3; ++d) parameters[1][k * 3 + d] = of_shared[0][k * 4 + d];
      parameters[0][k] = of_shared[0][k * 4 + 3];
    }
    for (size_t t = 2; t < apart->tables().size(); ++t) parameters[t] = of_shared[t - 1];
    ASSERT_TRUE(
        apart->ComputeGradients(batch, parameters.spans(), 1, gradients.mutable_spans()).ok());
    for (size_t k = 0; k < keys; ++k) {
      for (size_t d = 0; d < 3; ++d)
        EXPECT_EQ(gradients[1][k * 3 + d], shared_gradients[0][k * 4 + d]);
      EXPECT_EQ(gradients[0][k], shared_gradients[0][k * 4 + 3]);
    }
    for (size_t t = 2; t < apart->tables().size(); ++t)
      EXPECT_EQ(gradients[t], shared_gradients[t - 1]);
  }
}

class TrainingModelBatchTest : public ::testing::Test {
 protected:
  // Changes a good batch of 6 samples and returns the error message, or "".
  template <typename Change>
  std::string Refusal(const ModelCase& test_case, Change change) {
    std::mt19937 random(3);
    const auto model = TrainingModel::Create(JobOf(test_case.model), test_case.shape, device_);
    Batch batch = RandomBatch(test_case, 6, 4, random);
    change(batch);
    const TableValues parameters(**model, batch, 0);
    Predictions predictions;
    const absl::Status status = (*model)->Predict(batch, parameters.spans(), &predictions);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const ModelCase fm_{"", "fm { dim: 2 }", {2, 3}, LOGISTIC};
  const ModelCase mlp_{"", "mlp { classes: 3 }", {2, 0}, SOFTMAX_CROSS_ENTROPY};
  const ModelCase regression_{"", "fm { dim: 2 } loss: SQUARED", {2, 3}, SQUARED};
  CpuDevice device_;
};

TEST_F(TrainingModelBatchTest, BatchesThatDoNotFitAreRefused) {
  const auto unchanged = [](Batch&) {};
  EXPECT_EQ(Refusal(fm_, unchanged), "");
  const auto expect = [&](const std::string& prefix, auto change) {
    const std::string refusal = Refusal(fm_, change);
    EXPECT_TRUE(absl::StartsWith(refusal, prefix)) << refusal;
  };
  expect("batch:", [](Batch& batch) { ++batch.numeric_count; });
  expect("batch.field_sets:", [](Batch& batch) { ++batch.field_sets[0].field_count; });
  expect("batch.field_sets:", [](Batch& batch) { batch.field_sets.emplace_back(); });
  expect("batch.keys:", [](Batch& batch) { batch.keys.emplace_back(); });
  expect("batch.weights:", [](Batch& batch) { batch.weights = {1}; });
  expect("batch.labels:", [](Batch& batch) { batch.labels.pop_back(); });
  expect("batch.numerics:", [](Batch& batch) { batch.numerics.push_back(0); });
  expect("batch.field_begin:", [](Batch& batch) { batch.field_sets[0].field_begin.pop_back(); });
  expect("batch.field_begin:", [](Batch& batch) { ++batch.field_sets[0].field_begin.back(); });
  expect("batch.field_begin[2]:", [](Batch& batch) { batch.field_sets[0].field_begin[1] = 1000; });
  expect("batch.entry_value:", [](Batch& batch) { batch.field_sets[0].entry_value.pop_back(); });
  expect("batch.entry_key[3]:",
         [](Batch& batch) { batch.field_sets[0].entry_key[3] = batch.keys[0].size(); });
}

TEST_F(TrainingModelCreateTest, FeaturesHaveTheirOwnWidthNoiseAndOptimizer) {
  Job job = JobOf(
      "wide_deep { dim: 4 init_stddev: 0.5 } features { table: 'a' columns: '1' dim: 2 "
      "init_stddev: 0.25 optimizer { adam { learning_rate: 1 } } }");
  const auto model = TrainingModel::Create(job, {0, 2}, device_).value();
  ASSERT_EQ(model->tables()[0].name(), "embedding");
  EXPECT_EQ(model->tables()[0].row_width(), 5u);
  EXPECT_EQ(model->tables()[0].initializer().normal().stddev(), 0.5f);
  EXPECT_TRUE(model->tables()[0].optimizer().has_sgd());
  ASSERT_EQ(model->tables()[1].name(), "embedding/a");
  EXPECT_EQ(model->tables()[1].row_width(), 3u);
  EXPECT_EQ(model->tables()[1].initializer().normal().stddev(), 0.25f);
  EXPECT_TRUE(model->tables()[1].optimizer().has_adam());
  EXPECT_NE(model->key_set(0), model->key_set(1));
  EXPECT_TRUE(absl::StartsWith(
      Refusal("deepfm { dim: 4 } features { table: 'a' columns: '1' dim: 2 }", {0, 2}),
      "model.features: the table embedding/a has dim 2"));
}

TEST_F(TrainingModelBatchTest, LabelsThatTheLossRejectsAreRefused) {
  const auto with_label = [](float label) {
    return [label](Batch& batch) { batch.labels[4] = label; };
  };
  EXPECT_EQ(Refusal(fm_, with_label(-1)), "");
  EXPECT_EQ(Refusal(mlp_, with_label(2)), "");
  EXPECT_EQ(Refusal(regression_, with_label(1e20f)), "");
  for (const float label : {0.5f, 2.0f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(absl::StartsWith(Refusal(fm_, with_label(label)), "label of sample 4:"));
  }
  for (const float label : {-1.0f, 1.5f, 3.0f, std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(absl::StartsWith(Refusal(mlp_, with_label(label)), "label of sample 4:"));
  }
  EXPECT_TRUE(
      absl::StartsWith(Refusal(regression_, with_label(std::numeric_limits<float>::infinity())),
                       "label of sample 4:"));
}

TEST_F(TrainingModelBatchTest, MinusOneCountsAsZero) {
  std::mt19937 random(3);
  const auto model = TrainingModel::Create(JobOf(fm_.model), fm_.shape, device_);
  Batch batch = RandomBatch(fm_, 50, 4, random);
  TableValues parameters(**model, batch, 0);
  parameters.Randomize(0.5f, random);
  TableValues zeros(**model, batch, 0), minus_ones = zeros;
  const auto zeros_loss =
      (*model)->ComputeGradients(batch, parameters.spans(), 1, zeros.mutable_spans());
  for (float& label : batch.labels) label = label == 0 ? -1 : label;
  const auto minus_ones_loss =
      (*model)->ComputeGradients(batch, parameters.spans(), 1, minus_ones.mutable_spans());
  EXPECT_EQ(zeros_loss->loss_sum, minus_ones_loss->loss_sum);
  EXPECT_TRUE(zeros == minus_ones);
}

// Compares with the list that checks job files before a model exists.
TEST_F(TrainingModelCreateTest, LayersOfAModelMatchItsTables) {
  for (const ModelCase& test_case : ModelCases()) {
    const Job job = JobOf(test_case.model);
    const auto model = TrainingModel::Create(job, test_case.shape, device_);
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<std::string> layers;
    for (const TableSpec& table : (*model)->tables()) {
      if (absl::EndsWith(table.name(), "/weight")) layers.push_back(table.name());
    }
    std::vector<std::string> listed = LayersOf(job.model(), test_case.shape.label_count);
    for (std::string& layer : listed) layer += "/weight";
    EXPECT_EQ(listed, layers) << test_case.name;
  }
}

TEST_F(TrainingModelCreateTest, UnknownRecomputedLayersAreRefused) {
  EXPECT_TRUE(absl::StartsWith(Refusal("deepfm { dim: 4 hidden: 3 } recompute: 'mlp/2'", {0, 2}),
                               "model.recompute[0]"));
  EXPECT_EQ(Refusal("deepfm { dim: 4 hidden: 3 } recompute: 'mlp/1'", {0, 2}), "");
}

}  // namespace
}  // namespace pawl
