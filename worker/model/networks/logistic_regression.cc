#include "worker/model/networks/logistic_regression.h"

#include <optional>

#include "absl/memory/memory.h"

namespace pawl {
namespace {

// A sparse table of width 1, initially zero, if there are fields.
std::optional<SparseColumns> WeightOf(const DataShape& shape, TableList& tables) {
  if (shape.field_count == 0) return std::nullopt;
  const size_t table = tables.AddSparse("linear", 1, ZeroInitializer());
  return SparseColumns{.table = table, .begin = 0, .count = 1, .row_width = 1};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> LogisticRegressionNetwork::Create(
    const Model::LogisticRegression& spec, const DataShape& shape, TableList& tables) {
  if (shape.field_count == 0 && shape.numeric_count == 0) {
    return absl::InvalidArgumentError("model.logistic_regression: the data has no inputs");
  }
  return absl::WrapUnique(new LogisticRegressionNetwork(spec, shape, tables));
}

LogisticRegressionNetwork::LogisticRegressionNetwork(const Model::LogisticRegression&,
                                                     const DataShape& shape, TableList& tables)
    : linear_(shape, WeightOf(shape, tables), LinearPart::Bias::kYes, tables) {}

absl::Status LogisticRegressionNetwork::Forward(ModelStep& step, Matrix outputs) {
  linear_.Forward(step, outputs);
  return absl::OkStatus();
}

absl::Status LogisticRegressionNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  linear_.Backward(step, output_gradients);
  return absl::OkStatus();
}

}  // namespace pawl
