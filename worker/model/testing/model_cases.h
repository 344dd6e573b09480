// The models of the tests, and batches for them.
#ifndef PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_
#define PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/model/testing/model_test_util.h"

namespace pawl {

// A model, the shape of its data, and its loss.
struct ModelCase {
  std::string name;
  std::string model;
  DataShape shape;
  Loss loss;
};

// Every kind of model, with and without its optional parts.
inline std::vector<ModelCase> ModelCases() {
  return {
      {"LogisticRegression", "logistic_regression {}", {3, 4}, LOGISTIC},
      {"LogisticRegressionOfFieldsAlone", "logistic_regression {}", {0, 4}, LOGISTIC},
      {"LogisticRegressionOfNumbersAlone", "logistic_regression {}", {5, 0}, LOGISTIC},
      {"LinearRegression", "logistic_regression {} loss: SQUARED", {3, 2}, SQUARED},
      {"Fm", "fm { dim: 5 }", {2, 4}, LOGISTIC},
      {"FmOfOneField", "fm { dim: 3 }", {0, 1}, LOGISTIC},
      {"FmRegression", "fm { dim: 16 } loss: SQUARED", {0, 3}, SQUARED},
      {"WideDeep", "wide_deep { dim: 4 hidden: 7 hidden: 5 }", {3, 4}, LOGISTIC},
      {"WideDeepWithoutHidden", "wide_deep { dim: 4 }", {0, 3}, LOGISTIC},
      {"DeepFm", "deepfm { dim: 4 hidden: 9 hidden: 6 }", {2, 3}, LOGISTIC},
      {"DeepFmOfFieldsAlone", "deepfm { dim: 8 hidden: 5 }", {0, 5}, LOGISTIC},
      {"DeepFmRegression", "deepfm { dim: 3 hidden: 5 } loss: SQUARED", {1, 2}, SQUARED},
      {"Dlrm", "dlrm { dim: 4 bottom: 6 bottom: 4 top: 8 top: 5 }", {3, 3}, LOGISTIC},
      {"DlrmWithoutNumbers", "dlrm { dim: 5 top: 6 }", {0, 4}, LOGISTIC},
      {"DlrmWithoutTop", "dlrm { dim: 4 bottom: 4 }", {2, 2}, LOGISTIC},
      {"Mlp", "mlp { hidden: 8 hidden: 6 classes: 4 }", {7, 0}, SOFTMAX_CROSS_ENTROPY},
      {"SoftmaxRegression", "mlp { classes: 3 }", {5, 0}, SOFTMAX_CROSS_ENTROPY},
      {"MlpWithOneOutput", "mlp { hidden: 6 }", {4, 0}, LOGISTIC},
      {"MlpRegression", "mlp { hidden: 6 classes: 1 } loss: SQUARED", {4, 0}, SQUARED},
      {"MatrixFactorization", "matrix_factorization { dim: 6 mean: 3.5 }", {0, 2}, SQUARED},
      {"MatrixFactorizationOfClicks",
       "matrix_factorization { dim: 3 } loss: LOGISTIC",
       {0, 2},
       LOGISTIC},
  };
}

inline float RandomLabel(const ModelCase& test_case, uint32_t classes, std::mt19937& random) {
  switch (test_case.loss) {
    case LOGISTIC:
      return random() % 2;
    case SOFTMAX_CROSS_ENTROPY:
      return random() % classes;
    default:
      return std::normal_distribution<float>(3, 2)(random);
  }
}

// Fields of 0, 1 or 2 entries with values; some keys repeat.
inline Batch RandomBatch(const ModelCase& test_case, uint32_t samples, uint32_t keys,
                         std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  Batch batch;
  batch.samples = samples;
  batch.numeric_count = test_case.shape.numeric_count;
  batch.field_count = test_case.shape.field_count;
  const Job job = JobOf(test_case.model);
  for (uint32_t s = 0; s < samples; ++s)
    batch.labels.push_back(RandomLabel(test_case, job.model().mlp().classes(), random));
  for (uint32_t i = 0; i < samples * batch.numeric_count; ++i)
    batch.numerics.push_back(normal(random));
  if (batch.field_count == 0) keys = 0;
  for (uint32_t k = 0; k < keys; ++k) batch.keys.push_back(random());
  batch.field_begin.push_back(0);
  for (uint32_t i = 0; i < samples * batch.field_count; ++i) {
    for (uint32_t count = random() % 8 == 0 ? random() % 3 : 1; count > 0; --count) {
      batch.entry_key.push_back(random() % keys);
      batch.entry_value.push_back(random() % 2 == 0 ? 1 : normal(random));
    }
    batch.field_begin.push_back(batch.entry_key.size());
  }
  return batch;
}

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_
