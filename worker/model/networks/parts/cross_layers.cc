#include "worker/model/networks/parts/cross_layers.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"

namespace pawl {

CrossLayers::CrossLayers(size_t width, uint32_t layers, uint32_t rank, TableList& tables)
    : width_(width), rank_(rank) {
  for (uint32_t l = 0; l < layers; ++l) {
    Layer& layer = layers_.emplace_back();
    const auto add = [&](const char* name, size_t rows, size_t columns) {
      layer.weight_tables.push_back(tables.AddDense(absl::StrCat("cross/", l, "/", name),
                                                    {rows, columns}, XavierInitializer()));
    };
    if (rank == 0) {
      add("w", width, width);
    } else {
      add("v", width, rank);
      add("u", rank, width);
    }
    layer.bias_table =
        tables.AddDense(absl::StrCat("cross/", l, "/bias"), {width}, ZeroInitializer());
  }
}

ConstMatrix CrossLayers::WeightOf(const ModelStep& step, const Layer& layer, size_t i) const {
  const size_t rows = i == 0 ? width_ : rank_;
  const size_t columns = i + 1 == layer.weight_tables.size() ? width_ : rank_;
  return {step.parameters[layer.weight_tables[i]], rows, columns, columns};
}

absl::StatusOr<Matrix> CrossLayers::Forward(ModelStep& step, ConstMatrix input) {
  x0_ = input;
  Matrix result;
  for (Layer& layer : layers_) {
    layer.input = input;
    for (const size_t table : layer.weight_tables) step.await(table);
    step.await(layer.bias_table);
    ConstMatrix factor = input;
    if (rank_ != 0) {
      PAWL_ASSIGN_OR_RETURN(layer.projected, step.Allocate(rank_));
      step.Gemm(Transpose::kNo, Transpose::kNo, 1, input, WeightOf(step, layer, 0), 0,
                layer.projected);
      factor = layer.projected;
    }
    PAWL_ASSIGN_OR_RETURN(layer.product, step.Allocate(width_));
    step.stream.Layer(step.factors, factor, WeightOf(step, layer, layer.weight_tables.size() - 1),
                      step.parameters[layer.bias_table], Activation::kLinear, 0, layer.product);
    PAWL_ASSIGN_OR_RETURN(result, step.Allocate(width_));
    step.stream.Copy(input, Write::kReplace, result);
    step.stream.Multiply(x0_, layer.product, Write::kAdd, result);
    input = result;
  }
  return result;
}

absl::Status CrossLayers::LayerBackward(ModelStep& step, const Layer& layer,
                                        ConstMatrix product_gradient, Matrix input_gradient) const {
  step.stream.SumColumns(product_gradient, step.gradients[layer.bias_table]);
  step.finish(layer.bias_table);
  const auto gradient_of = [&](size_t i) {
    const ConstMatrix weight = WeightOf(step, layer, i);
    return Matrix{step.gradients[layer.weight_tables[i]], weight.rows, weight.columns,
                  weight.stride};
  };
  if (rank_ == 0) {
    step.Gemm(Transpose::kYes, Transpose::kNo, 1, layer.input, product_gradient, 0, gradient_of(0));
    step.finish(layer.weight_tables[0]);
    step.Gemm(Transpose::kNo, Transpose::kYes, 1, product_gradient, WeightOf(step, layer, 0), 1,
              input_gradient);
    return absl::OkStatus();
  }
  PAWL_ASSIGN_OR_RETURN(const Matrix projected_gradient,
                        step.pool.Take(product_gradient.rows, rank_));
  step.Gemm(Transpose::kYes, Transpose::kNo, 1, layer.projected, product_gradient, 0,
            gradient_of(1));
  step.finish(layer.weight_tables[1]);
  step.Gemm(Transpose::kNo, Transpose::kYes, 1, product_gradient, WeightOf(step, layer, 1), 0,
            projected_gradient);
  step.Gemm(Transpose::kYes, Transpose::kNo, 1, layer.input, projected_gradient, 0, gradient_of(0));
  step.finish(layer.weight_tables[0]);
  step.Gemm(Transpose::kNo, Transpose::kYes, 1, projected_gradient, WeightOf(step, layer, 0), 1,
            input_gradient);
  step.pool.GiveBack(projected_gradient);
  return absl::OkStatus();
}

absl::Status CrossLayers::Backward(ModelStep& step, Matrix output_gradient,
                                   Matrix input_gradient) const {
  PAWL_ASSIGN_OR_RETURN(const Matrix product_gradient,
                        step.pool.Take(output_gradient.rows, width_));
  // First the part by way of x_0, over all layers; output_gradient is that of x_l.
  for (size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    const bool is_last = l + 1 == layers_.size();
    step.stream.Multiply(output_gradient, layer.product, is_last ? Write::kReplace : Write::kAdd,
                         input_gradient);
    step.stream.Multiply(output_gradient, x0_, Write::kReplace, product_gradient);
    PAWL_RETURN_IF_ERROR(LayerBackward(step, layer, product_gradient, output_gradient));
  }
  step.stream.Copy(output_gradient, Write::kAdd, input_gradient);
  step.pool.GiveBack(product_gradient);
  return absl::OkStatus();
}

}  // namespace pawl
