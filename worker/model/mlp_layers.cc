#include "worker/model/mlp_layers.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

MlpLayers::MlpLayers(const std::string& name, uint32_t inputs, const std::vector<uint32_t>& widths, LastLayer last_layer,
                     TableList& tables)
    : last_layer_(last_layer) {
  for (size_t i = 0; i < widths.size(); ++i) {
    Layer& layer = layers_.emplace_back();
    layer.inputs = inputs;
    layer.outputs = widths[i];
    layer.weight_table = tables.AddDense(absl::StrCat(name, "/", i, "/weight"), {inputs, widths[i]}, XavierInitializer());
    layer.bias_table = tables.AddDense(absl::StrCat(name, "/", i, "/bias"), {widths[i]}, ZeroInitializer());
    inputs = widths[i];
  }
}

absl::Status MlpLayers::Forward(ModelStep& step, ConstMatrix input, Write write, Matrix output) {
  for (Layer& layer : layers_) {
    const bool is_last = &layer == &layers_.back();
    Matrix result = output;
    if (!is_last) {
      PAWL_ASSIGN_OR_RETURN(result, step.Allocate(layer.outputs));
    }
    step.await(layer.weight_table);
    step.await(layer.bias_table);
    const ConstMatrix weight(step.parameters[layer.weight_table], layer.inputs, layer.outputs, layer.outputs);
    const float beta = is_last && write == Write::kAdd ? 1 : 0;
    step.stream.Gemm(Transpose::kNo, Transpose::kNo, 1, input, weight, beta, result);
    step.stream.AddBias(step.parameters[layer.bias_table], result);
    if (!is_last || last_layer_ == LastLayer::kRelu) step.stream.Relu(result);
    layer.input = input;
    layer.output = result;
    input = result;
  }
  return absl::OkStatus();
}

absl::Status MlpLayers::Backward(ModelStep& step, Matrix output_gradient, std::optional<Matrix> input_gradient) {
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    if (i + 1 < layers_.size() || last_layer_ == LastLayer::kRelu) {
      step.stream.ReluBackward(layer.output, output_gradient);
    }
    const Matrix weight_gradient{step.gradients[layer.weight_table], layer.inputs, layer.outputs, layer.outputs};
    step.stream.Gemm(Transpose::kYes, Transpose::kNo, 1, layer.input, output_gradient, 0, weight_gradient);
    step.finish(layer.weight_table);
    step.stream.SumColumns(output_gradient, step.gradients[layer.bias_table]);
    step.finish(layer.bias_table);
    if (i == 0 && !input_gradient.has_value()) break;

    Matrix below;
    if (i == 0) {
      below = *input_gradient;
    } else {
      PAWL_ASSIGN_OR_RETURN(below, step.Allocate(layer.inputs));
    }
    const ConstMatrix weight(step.parameters[layer.weight_table], layer.inputs, layer.outputs, layer.outputs);
    step.stream.Gemm(Transpose::kNo, Transpose::kYes, 1, output_gradient, weight, 0, below);
    output_gradient = below;
  }
  return absl::OkStatus();
}

}  // namespace pawl
