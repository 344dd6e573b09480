#include "worker/model/networks/wide_deep.h"

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> WideDeepNetwork::Create(const Model::WideDeep& spec,
                                                                 const DataShape& shape,
                                                                 TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.wide_deep.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.wide_deep.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.wide_deep.hidden", spec.hidden()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.wide_deep", shape.field_count));
  PAWL_RETURN_IF_ERROR(CheckInputWidth(
      "model.wide_deep", uint64_t{shape.field_count} * spec.dim() + shape.numeric_count));
  return absl::WrapUnique(new WideDeepNetwork(spec, shape, tables));
}

WideDeepNetwork::WideDeepNetwork(const Model::WideDeep& spec, const DataShape& shape,
                                 TableList& tables)
    : columns_(AddWeightAndVector(spec.dim(), spec.init_stddev(), tables)),
      linear_(shape, columns_.weight, LinearPart::Bias::kYes, tables),
      embedding_(shape.field_count, columns_.vector),
      mlp_("mlp", embedding_.width() + shape.numeric_count, MlpLayers::Widths(spec.hidden(), 1),
           MlpLayers::LastLayer::kLinear, tables) {}

absl::Status WideDeepNetwork::Forward(ModelStep& step, Matrix outputs) {
  linear_.Forward(step, outputs);
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs,
                        step.Allocate(embedding_.width() + step.numerics.columns));
  embedding_.Forward(step, inputs.Columns(0, embedding_.width()));
  step.stream.Copy(step.numerics, Write::kReplace,
                   inputs.Columns(embedding_.width(), step.numerics.columns));
  return mlp_.Forward(step, inputs, Write::kAdd, outputs);
}

absl::Status WideDeepNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  linear_.Backward(step, output_gradients);
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient,
                        step.Allocate(embedding_.width() + step.numerics.columns));
  PAWL_RETURN_IF_ERROR(mlp_.Backward(step, output_gradients, inputs_gradient));
  embedding_.Backward(step, inputs_gradient.Columns(0, embedding_.width()));
  return absl::OkStatus();
}

}  // namespace pawl
