#include "worker/model/networks/parts/linear_part.h"

#include <utility>

#include "client_lib/base/status_macros.h"

namespace pawl {

LinearPart::LinearPart(const DataShape& shape, std::vector<SparseColumns> weights, Bias bias,
                       TableList& tables)
    : numeric_count_(shape.numeric_count), weights_(std::move(weights)) {
  if (numeric_count_ > 0)
    numeric_table_ = tables.AddDense("linear/numeric", {numeric_count_}, ZeroInitializer());
  if (bias == Bias::kYes) bias_table_ = tables.AddDense("bias", {1}, ZeroInitializer());
}

absl::Status LinearPart::Forward(ModelStep& step, Matrix outputs) const {
  if (weights_.empty()) step.stream.Zero(outputs.data, outputs.rows * sizeof(float));
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (i == 0) {
      weights_[i].Pool(step, PoolOver::kSample, outputs);
      continue;
    }
    PAWL_ASSIGN_OR_RETURN(const Matrix part, step.pool.Take(outputs.rows, 1));
    weights_[i].Pool(step, PoolOver::kSample, part);
    step.stream.Copy(part, Write::kAdd, outputs);
    step.pool.GiveBack(part);
  }
  if (numeric_table_.has_value()) {
    step.await(*numeric_table_);
    const ConstMatrix weights(step.parameters[*numeric_table_], numeric_count_, 1, 1);
    step.Gemm(Transpose::kNo, Transpose::kNo, 1, step.numerics, weights, 1, outputs);
  }
  if (bias_table_.has_value()) {
    step.await(*bias_table_);
    step.stream.AddBias(step.parameters[*bias_table_], outputs);
  }
  return absl::OkStatus();
}

absl::Status LinearPart::Backward(ModelStep& step, ConstMatrix output_gradients) const {
  if (bias_table_.has_value()) {
    step.stream.SumColumns(output_gradients, step.gradients[*bias_table_]);
    step.finish(*bias_table_);
  }
  if (numeric_table_.has_value()) {
    const Matrix gradient{step.gradients[*numeric_table_], numeric_count_, 1, 1};
    step.Gemm(Transpose::kYes, Transpose::kNo, 1, step.numerics, output_gradients, 0, gradient);
    step.finish(*numeric_table_);
  }
  for (const SparseColumns& weight : weights_) {
    PAWL_RETURN_IF_ERROR(weight.PoolBackward(step, PoolOver::kSample, output_gradients));
  }
  return absl::OkStatus();
}

}  // namespace pawl
