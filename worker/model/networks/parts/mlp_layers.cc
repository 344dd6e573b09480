#include "worker/model/networks/parts/mlp_layers.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

MlpLayers::MlpLayers(const std::string& name, uint32_t inputs, const std::vector<uint32_t>& widths,
                     LastLayer last_layer, TableList& tables)
    : last_layer_(last_layer) {
  for (size_t i = 0; i < widths.size(); ++i) {
    Layer& layer = layers_.emplace_back();
    layer.inputs = inputs;
    layer.outputs = widths[i];
    layer.weight_table = tables.AddDense(absl::StrCat(name, "/", i, "/weight"), {inputs, widths[i]},
                                         XavierInitializer());
    layer.bias_table =
        tables.AddDense(absl::StrCat(name, "/", i, "/bias"), {widths[i]}, ZeroInitializer());
    inputs = widths[i];
  }
}

void MlpLayers::Compute(ModelStep& step, size_t i, ConstMatrix input, float beta,
                        Matrix result) const {
  const Layer& layer = layers_[i];
  const ConstMatrix weight(step.parameters[layer.weight_table], layer.inputs, layer.outputs,
                           layer.outputs);
  step.stream.Layer(step.factors, input, weight, step.parameters[layer.bias_table],
                    HasRelu(i) ? Activation::kRelu : Activation::kLinear, beta, result);
}

absl::Status MlpLayers::Forward(ModelStep& step, ConstMatrix input, Write write, Matrix output) {
  input_ = input;
  // The input of the current layer, if nothing needs it afterwards.
  std::optional<Matrix> passing;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const bool is_last = i + 1 == layers_.size();
    const bool is_kept = is_last || !step.recomputes[layer.weight_table];
    Matrix result = output;
    if (!is_kept) {
      PAWL_ASSIGN_OR_RETURN(result, step.pool.Take(input_.rows, layer.outputs));
    } else if (!is_last) {
      PAWL_ASSIGN_OR_RETURN(result, step.workspace.AllocateMatrix(input_.rows, layer.outputs));
    }
    step.await(layer.weight_table);
    step.await(layer.bias_table);
    Compute(step, i, input, is_last && write == Write::kAdd ? 1 : 0, result);
    if (passing.has_value()) step.pool.GiveBack(*passing);
    passing.reset();
    layer.output.reset();
    if (is_kept) {
      layer.output = result;
    } else {
      passing = result;
    }
    input = result;
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix> MlpLayers::Recompute(ModelStep& step, size_t i) const {
  size_t from = i;
  while (from > 0 && !layers_[from - 1].output.has_value()) --from;
  ConstMatrix input = from == 0 ? input_ : *layers_[from - 1].output;
  std::optional<Matrix> passing;
  for (size_t at = from; at <= i; ++at) {
    PAWL_ASSIGN_OR_RETURN(const Matrix result, step.pool.Take(input_.rows, layers_[at].outputs));
    Compute(step, at, input, 0, result);
    if (passing.has_value()) step.pool.GiveBack(*passing);
    passing = result;
    input = result;
  }
  return *passing;
}

absl::Status MlpLayers::Backward(ModelStep& step, Matrix output_gradient,
                                 std::optional<Matrix> input_gradient) {
  ConstMatrix output = *layers_.back().output;
  // Those of the current layer's matrices that belong to the pool.
  std::optional<Matrix> passing_output, passing_gradient;
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    float* const bias_gradient = step.gradients[layer.bias_table];
    if (HasRelu(i)) {
      step.stream.ReluBackwardAndSum(output, output_gradient, bias_gradient);
    } else {
      step.stream.SumColumns(output_gradient, bias_gradient);
    }
    if (passing_output.has_value()) step.pool.GiveBack(*passing_output);
    passing_output.reset();
    ConstMatrix input = input_;
    if (i > 0 && layers_[i - 1].output.has_value()) {
      input = *layers_[i - 1].output;
    } else if (i > 0) {
      PAWL_ASSIGN_OR_RETURN(passing_output, Recompute(step, i - 1));
      input = *passing_output;
    }
    const Matrix weight_gradient{step.gradients[layer.weight_table], layer.inputs, layer.outputs,
                                 layer.outputs};
    step.Gemm(Transpose::kYes, Transpose::kNo, 1, input, output_gradient, 0, weight_gradient);
    step.finish(layer.weight_table);
    step.finish(layer.bias_table);

    std::optional<Matrix> below = input_gradient;
    if (i > 0) {
      PAWL_ASSIGN_OR_RETURN(below, step.pool.Take(input_.rows, layer.inputs));
    }
    if (below.has_value()) {
      const ConstMatrix weight(step.parameters[layer.weight_table], layer.inputs, layer.outputs,
                               layer.outputs);
      step.Gemm(Transpose::kNo, Transpose::kYes, 1, output_gradient, weight, 0, *below);
    }
    if (passing_gradient.has_value()) step.pool.GiveBack(*passing_gradient);
    passing_gradient.reset();
    if (i == 0) break;
    passing_gradient = below;
    output_gradient = *below;
    output = input;
  }
  return absl::OkStatus();
}

}  // namespace pawl
