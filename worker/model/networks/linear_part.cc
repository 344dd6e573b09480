#include "worker/model/networks/linear_part.h"

namespace pawl {

LinearPart::LinearPart(const DataShape& shape, const std::optional<SparseColumns>& weight,
                       Bias bias, TableList& tables)
    : numeric_count_(shape.numeric_count), weight_(weight) {
  if (numeric_count_ > 0)
    numeric_table_ = tables.AddDense("linear/numeric", {numeric_count_}, ZeroInitializer());
  if (bias == Bias::kYes) bias_table_ = tables.AddDense("bias", {1}, ZeroInitializer());
}

void LinearPart::Forward(ModelStep& step, Matrix outputs) const {
  if (weight_.has_value()) {
    weight_->Pool(step, PoolOver::kSample, outputs);
  } else {
    step.stream.Zero(outputs.data, outputs.rows * sizeof(float));
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
}

void LinearPart::Backward(ModelStep& step, ConstMatrix output_gradients) const {
  if (bias_table_.has_value()) {
    step.stream.SumColumns(output_gradients, step.gradients[*bias_table_]);
    step.finish(*bias_table_);
  }
  if (numeric_table_.has_value()) {
    const Matrix gradient{step.gradients[*numeric_table_], numeric_count_, 1, 1};
    step.Gemm(Transpose::kYes, Transpose::kNo, 1, step.numerics, output_gradients, 0, gradient);
    step.finish(*numeric_table_);
  }
  if (weight_.has_value()) weight_->PoolBackward(step, PoolOver::kSample, output_gradients);
}

}  // namespace pawl
