// Checks that every model learns, by plain SGD, what it can represent and nothing else.
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/testing/model_test_util.h"
#include "worker/model/training_model.h"

namespace pawl {
namespace {

constexpr uint32_t kKeysInField = 12;
constexpr uint32_t kSamples = 2000;

// The exact area under the ROC curve; ties count half.
double Auc(const std::vector<float>& scores, const std::vector<float>& labels) {
  double better = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] <= labels[j]) continue;
      pairs += 1;
      better += scores[i] > scores[j] ? 1 : (scores[i] == scores[j] ? 0.5 : 0);
    }
  }
  return better / pairs;
}

// The inputs from which a sample's label is derived.
struct Sample {
  std::vector<uint32_t> categories;
  std::vector<float> numerics;
};
using Labeler = std::function<float(const Sample&)>;

// Every key is in every batch, so that keys and parameters stay in one order.
Batch MakeBatch(uint32_t samples, const DataShape& shape, const Labeler& labeler,
                std::mt19937& random) {
  Batch batch;
  batch.samples = samples;
  batch.numeric_count = shape.numeric_count;
  batch.field_sets[0].field_count = shape.field_count;
  for (uint32_t k = 0; k < shape.field_count * kKeysInField; ++k) batch.keys[0].push_back(k);
  batch.field_sets[0].field_begin.push_back(0);
  for (uint32_t s = 0; s < samples; ++s) {
    Sample sample;
    for (uint32_t f = 0; f < shape.field_count; ++f) {
      sample.categories.push_back(random() % kKeysInField);
      batch.field_sets[0].entry_key.push_back(f * kKeysInField + sample.categories.back());
      batch.field_sets[0].entry_value.push_back(1);
      batch.field_sets[0].field_begin.push_back(batch.field_sets[0].entry_key.size());
    }
    for (uint32_t i = 0; i < shape.numeric_count; ++i) {
      sample.numerics.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
    }
    batch.numerics.insert(batch.numerics.end(), sample.numerics.begin(), sample.numerics.end());
    batch.labels.push_back(labeler(sample));
  }
  return batch;
}

// Trains and returns the predictions for unseen samples.
struct Outcome {
  double first_loss = 0;
  double last_loss = 0;
  Predictions predictions;
  std::vector<float> labels;

  double MeanLogLoss() const { return predictions.sums.logloss_sum / predictions.sums.samples; }
  double Accuracy() const {
    return static_cast<double>(predictions.sums.correct) / predictions.sums.samples;
  }
  double Rmse() const {
    return std::sqrt(predictions.sums.squared_error_sum / predictions.sums.samples);
  }
};

Outcome Train(const std::string& spec, const DataShape& shape, const Labeler& labeler,
              float learning_rate, int steps) {
  std::mt19937 random(11);
  CpuDevice device;
  auto model = TrainingModel::Create(JobOf(spec), shape, device);
  EXPECT_TRUE(model.ok()) << model.status();
  // A batch with all keys.
  Batch all;
  all.keys[0].resize(shape.field_count * kKeysInField);
  TableValues parameters(**model, all, 0), gradients = parameters;
  for (size_t t = 0; t < parameters.size(); ++t) {
    const TableSpec& table = (*model)->tables()[t];
    for (float& value : parameters[t]) {
      if (table.initializer().has_normal())
        value = std::normal_distribution<float>(0, 0.3f)(random);
      if (table.initializer().has_xavier()) {
        const float bound = std::sqrt(6.0f / (table.shape(0) + table.shape(1)));
        value = std::uniform_real_distribution<float>(-bound, bound)(random);
      }
    }
  }
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = MakeBatch(256, shape, labeler, random);
    const auto loss = (*model)->ComputeGradients(batch, parameters.spans(), 1.0f / batch.samples,
                                                 gradients.mutable_spans());
    EXPECT_TRUE(loss.ok()) << loss.status();
    (step == 0 ? outcome.first_loss : outcome.last_loss) = loss->loss_sum / loss->samples;
    for (size_t t = 0; t < parameters.size(); ++t) {
      // A key is in a twelfth of the samples, so its gradient is that much smaller.
      const float rate =
          learning_rate * ((*model)->tables()[t].kind() == SPARSE ? kKeysInField : 1);
      for (size_t i = 0; i < parameters[t].size(); ++i) parameters[t][i] -= rate * gradients[t][i];
    }
  }
  const Batch held_out = MakeBatch(kSamples, shape, labeler, random);
  EXPECT_TRUE((*model)->Predict(held_out, parameters.spans(), &outcome.predictions).ok());
  outcome.labels = held_out.labels;
  return outcome;
}

// "Yes" for high categories of the fields together; a line separates the classes.
float Additive(const Sample& sample) {
  return sample.categories[0] + sample.categories[1] >= kKeysInField ? 1 : 0;
}
// "Yes" if both fields are of the same kind; no field alone carries information.
float Interaction(const Sample& sample) {
  return (sample.categories[0] + sample.categories[1]) % 2 == 0 ? 1 : 0;
}
// "Yes" if a field matches the sign of a number.
float CrossedWithNumber(const Sample& sample) {
  return (sample.categories[0] % 2 == 0) == (sample.numerics[0] > 0) ? 1 : 0;
}

TEST(LearningTest, LogisticRegressionLearnsAnAdditiveLabel) {
  const Outcome outcome = Train("logistic_regression {}", {0, 3}, Additive, 1.0f, 400);
  EXPECT_LT(outcome.MeanLogLoss(), 0.2);
  EXPECT_GT(Auc(outcome.predictions.scores, outcome.labels), 0.99);
}

TEST(LearningTest, LogisticRegressionCannotLearnAnInteraction) {
  const Outcome outcome = Train("logistic_regression {}", {0, 3}, Interaction, 0.3f, 300);
  EXPECT_GT(outcome.MeanLogLoss(), 0.68);
  EXPECT_NEAR(Auc(outcome.predictions.scores, outcome.labels), 0.5, 0.05);
}

TEST(LearningTest, LogisticRegressionLearnsFromNumbers) {
  const auto labeler = [](const Sample& sample) {
    return sample.numerics[0] > sample.numerics[1] ? 1.0f : 0.0f;
  };
  const Outcome outcome = Train("logistic_regression {}", {2, 0}, labeler, 3.0f, 300);
  EXPECT_LT(outcome.MeanLogLoss(), 0.15);
}

TEST(LearningTest, FmLearnsAnInteraction) {
  const Outcome outcome = Train("fm { dim: 4 }", {0, 3}, Interaction, 0.2f, 400);
  EXPECT_NEAR(outcome.first_loss, std::log(2.0), 0.15);
  EXPECT_LT(outcome.MeanLogLoss(), 0.1);
  EXPECT_GT(Auc(outcome.predictions.scores, outcome.labels), 0.99);
}

TEST(LearningTest, WideDeepLearnsAnInteraction) {
  const Outcome outcome =
      Train("wide_deep { dim: 4 hidden: 32 hidden: 16 }", {0, 3}, Interaction, 0.2f, 800);
  EXPECT_LT(outcome.MeanLogLoss(), 0.1);
  EXPECT_GT(Auc(outcome.predictions.scores, outcome.labels), 0.99);
}

TEST(LearningTest, WideDeepCrossesAFieldWithANumber) {
  const Outcome outcome =
      Train("wide_deep { dim: 4 hidden: 32 hidden: 16 }", {1, 2}, CrossedWithNumber, 0.2f, 1200);
  EXPECT_LT(outcome.MeanLogLoss(), 0.2);
}

TEST(LearningTest, DeepFmLearnsAnInteraction) {
  const Outcome outcome =
      Train("deepfm { dim: 4 hidden: 16 hidden: 8 }", {0, 3}, Interaction, 0.1f, 400);
  EXPECT_LT(outcome.MeanLogLoss(), 0.1);
  EXPECT_GT(Auc(outcome.predictions.scores, outcome.labels), 0.99);
}

TEST(LearningTest, DlrmLearnsAnInteraction) {
  const Outcome outcome = Train("dlrm { dim: 8 top: 16 }", {0, 3}, Interaction, 0.2f, 800);
  EXPECT_LT(outcome.MeanLogLoss(), 0.1);
  EXPECT_GT(Auc(outcome.predictions.scores, outcome.labels), 0.99);
}

TEST(LearningTest, DlrmCrossesAFieldWithANumber) {
  const Outcome outcome =
      Train("dlrm { dim: 8 bottom: 16 bottom: 8 top: 16 }", {1, 2}, CrossedWithNumber, 0.2f, 1200);
  EXPECT_LT(outcome.MeanLogLoss(), 0.2);
}

TEST(LearningTest, MlpLearnsThreeClassesThatNoLineSeparates) {
  // Rings around the center.
  const auto labeler = [](const Sample& sample) {
    const float radius = std::hypot(sample.numerics[0], sample.numerics[1]);
    return radius < 0.45f ? 0.0f : (radius < 0.85f ? 1.0f : 2.0f);
  };
  const Outcome outcome =
      Train("mlp { hidden: 32 hidden: 16 classes: 3 }", {2, 0}, labeler, 0.5f, 4000);
  EXPECT_GT(outcome.Accuracy(), 0.93);
  const Outcome linear = Train("mlp { classes: 3 }", {2, 0}, labeler, 0.3f, 500);
  EXPECT_LT(linear.Accuracy(), 0.6);
}

TEST(LearningTest, MatrixFactorizationFindsPlantedFactors) {
  std::mt19937 random(5);
  std::vector<float> user(kKeysInField * 3), item(kKeysInField * 3);
  for (float& value : user) value = std::normal_distribution<float>(0, 0.7f)(random);
  for (float& value : item) value = std::normal_distribution<float>(0, 0.7f)(random);
  const auto labeler = [&](const Sample& sample) {
    const float* u = &user[sample.categories[0] * 3];
    const float* i = &item[sample.categories[1] * 3];
    return 3.5f + u[0] + i[0] + u[1] * i[1] + u[2] * i[2];
  };
  const Outcome outcome =
      Train("matrix_factorization { dim: 4 mean: 3.5 }", {0, 2}, labeler, 0.1f, 1500);
  EXPECT_GT(outcome.first_loss, 0.3);
  EXPECT_LT(outcome.Rmse(), 0.05);
}

}  // namespace
}  // namespace pawl
