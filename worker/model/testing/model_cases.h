// The models of the tests, and batches for them.
#ifndef PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_
#define PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "client_lib/job/field_layout.h"
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
  // Samples have weights.
  bool is_weighted = false;
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
      {"DeepFmOfWeightedSamples", "deepfm { dim: 4 hidden: 5 }", {2, 3}, LOGISTIC, true},
      {"RegressionOfWeightedSamples", "fm { dim: 3 } loss: SQUARED", {0, 2}, SQUARED, true},
      {"MlpOfWeightedSamples", "mlp { classes: 3 }", {4, 0}, SOFTMAX_CROSS_ENTROPY, true},
      {"LogisticRegressionOfTwoTables",
       "logistic_regression {} features { table: 'b' columns: ['1', '3'] }",
       {2, 4},
       LOGISTIC},
      {"WideDeepOfThreeTables",
       "wide_deep { dim: 4 hidden: 5 } features { table: 'b' columns: ['0', '2'] dim: 3 } "
       "features { table: 'c' columns: '4' dim: 7 }",
       {2, 5},
       LOGISTIC},
      {"DeepFmOfTablesWithoutOthers",
       "deepfm { dim: 3 hidden: 4 } features { table: 'b' columns: '0' } "
       "features { table: 'c' columns: '1' }",
       {0, 2},
       LOGISTIC},
      {"WideDeepOfMaxima",
       "wide_deep { dim: 3 hidden: 4 } features { table: 'b' columns: ['0', '2'] pooling: MAX } "
       "features { table: 'b' columns: '3' }",
       {1, 4},
       LOGISTIC},
      {"Dcn", "dcn { dim: 3 cross_layers: 2 hidden: [6, 4] }", {2, 3}, LOGISTIC},
      {"DcnOfLowRank",
       "dcn { dim: 3 cross_layers: 3 rank: 2 hidden: 5 parallel: true }",
       {1, 2},
       LOGISTIC},
      {"DcnOfCrossLayersAlone", "dcn { dim: 2 cross_layers: 1 } loss: SQUARED", {0, 3}, SQUARED},
      {"Mmoe",
       "mmoe { dim: 3 experts: 3 expert: [5, 4] tower: 3 label_weights: [1, 0.5] }",
       {2, 2, 2},
       LOGISTIC},
      {"MmoeOfWeightedSamples", "mmoe { dim: 2 experts: 2 expert: 3 }", {0, 3, 3}, LOGISTIC, true},
      {"SharedBottom", "mmoe { dim: 3 experts: 1 expert: 4 tower: 3 }", {1, 2, 2}, LOGISTIC},
      {"MmoeOfOneLabel", "mmoe { dim: 3 experts: 2 expert: 4 }", {1, 2}, LOGISTIC},
      {"Din",
       "din { dim: 3 attention { history: '2' target: '0' } attention_hidden: 4 hidden: 5 }",
       {2, 3},
       LOGISTIC},
      {"DinOfHistoriesInOneTable",
       "din { dim: 3 attention { history: '3' target: '1' } attention { history: '0' target: '1' } "
       "hidden: 4 }",
       {1, 4},
       LOGISTIC},
      {"DinOfTwoHistories",
       "din { dim: 4 attention { history: '1' target: '2' } attention { history: '3' target: '4' } "
       "hidden: [6, 4] } features { table: 'shop' columns: ['3', '4'] dim: 2 }",
       {0, 5},
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

// Fields of 0, 1 or 2 entries with values, lists of 0 to 4; some keys repeat. `keys` for each
// table.
inline Batch RandomBatch(const ModelCase& test_case, uint32_t samples, uint32_t keys,
                         std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  Batch batch;
  batch.samples = samples;
  batch.numeric_count = test_case.shape.numeric_count;
  batch.label_count = test_case.shape.label_count;
  const Job job = JobOf(test_case.model);
  for (uint32_t i = 0; i < samples * batch.label_count; ++i)
    batch.labels.push_back(RandomLabel(test_case, job.model().mlp().classes(), random));
  for (uint32_t i = 0; i < samples * batch.numeric_count; ++i)
    batch.numerics.push_back(normal(random));
  for (uint32_t s = 0; test_case.is_weighted && s < samples; ++s)
    batch.weights.push_back(static_cast<float>(random() % 4));
  const FieldLayout layout =
      FieldLayoutOf(job.data(), job.model(), test_case.shape.field_count).value();
  if (test_case.shape.field_count == 0) keys = 0;
  batch.keys.assign(layout.key_sets.size(), {});
  for (std::vector<uint64_t>& of_table : batch.keys) {
    for (uint32_t k = 0; k < keys; ++k) of_table.push_back(random());
  }
  batch.field_sets.assign(layout.field_sets.size(), {});
  for (size_t i = 0; i < layout.field_sets.size(); ++i) {
    FieldSet& set = batch.field_sets[i];
    set.key_set = layout.field_sets[i].key_set;
    set.field_count = static_cast<uint32_t>(layout.field_sets[i].fields.size());
    set.field_begin.push_back(0);
    for (uint32_t f = 0; f < samples * set.field_count; ++f) {
      const FieldPooling pooling = layout.field_sets[i].pooling;
      const bool is_list = pooling == FieldPooling::kMax || pooling == FieldPooling::kNone;
      uint32_t count = random() % 8 == 0 ? random() % 3 : 1;
      if (is_list) count = random() % 5;
      for (; count > 0; --count) {
        set.entry_key.push_back(random() % keys);
        set.entry_value.push_back(random() % 2 == 0 ? 1 : normal(random));
      }
      set.field_begin.push_back(static_cast<uint32_t>(set.entry_key.size()));
    }
  }
  return batch;
}

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_MODEL_CASES_H_
