#include "worker/model/networks/wide_deep.h"

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> WideDeepNetwork::Create(const Model::WideDeep& spec,
                                                                 const ModelInputs& inputs,
                                                                 TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.wide_deep.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.wide_deep.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.wide_deep.hidden", spec.hidden()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.wide_deep", inputs.shape.field_count));
  PAWL_RETURN_IF_ERROR(CheckInputWidth(
      "model.wide_deep", VectorsWidth(inputs.layout, spec.dim()) + inputs.shape.numeric_count));
  return absl::WrapUnique(new WideDeepNetwork(spec, inputs, tables));
}

WideDeepNetwork::WideDeepNetwork(const Model::WideDeep& spec, const ModelInputs& inputs,
                                 TableList& tables)
    : columns_(AddWeightsAndVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables)),
      linear_(inputs.shape, columns_.weights, LinearPart::Bias::kYes, tables),
      embedding_(inputs.layout, columns_.vectors),
      mlp_("mlp", embedding_.width() + inputs.shape.numeric_count,
           MlpLayers::Widths(spec.hidden(), 1), MlpLayers::LastLayer::kLinear, tables) {}

absl::Status WideDeepNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_RETURN_IF_ERROR(linear_.Forward(step, outputs));
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs,
                        step.Allocate(embedding_.width() + step.numerics.columns));
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, inputs.Columns(0, embedding_.width())));
  step.stream.Copy(step.numerics, Write::kReplace,
                   inputs.Columns(embedding_.width(), step.numerics.columns));
  return mlp_.Forward(step, inputs, Write::kAdd, outputs);
}

absl::Status WideDeepNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_RETURN_IF_ERROR(linear_.Backward(step, output_gradients));
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient,
                        step.Allocate(embedding_.width() + step.numerics.columns));
  PAWL_RETURN_IF_ERROR(mlp_.Backward(step, output_gradients, inputs_gradient));
  return embedding_.Backward(step, inputs_gradient.Columns(0, embedding_.width()));
}

}  // namespace pawl
