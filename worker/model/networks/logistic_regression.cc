#include "worker/model/networks/logistic_regression.h"

#include <vector>

#include "absl/memory/memory.h"

namespace pawl {
namespace {

std::vector<SparseColumns> WeightsOf(const ModelInputs& inputs, TableList& tables) {
  if (inputs.shape.field_count == 0) return {};
  return AddWeights(inputs.layout, tables);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> LogisticRegressionNetwork::Create(
    const Model::LogisticRegression& spec, const ModelInputs& inputs, TableList& tables) {
  if (inputs.shape.field_count == 0 && inputs.shape.numeric_count == 0) {
    return absl::InvalidArgumentError("model.logistic_regression: the data has no inputs");
  }
  return absl::WrapUnique(new LogisticRegressionNetwork(spec, inputs, tables));
}

LogisticRegressionNetwork::LogisticRegressionNetwork(const Model::LogisticRegression&,
                                                     const ModelInputs& inputs, TableList& tables)
    : linear_(inputs.shape, WeightsOf(inputs, tables), LinearPart::Bias::kYes, tables) {}

absl::Status LogisticRegressionNetwork::Forward(ModelStep& step, Matrix outputs) {
  return linear_.Forward(step, outputs);
}

absl::Status LogisticRegressionNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  return linear_.Backward(step, output_gradients);
}

}  // namespace pawl
