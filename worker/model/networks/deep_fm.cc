#include "worker/model/networks/deep_fm.h"

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> DeepFmNetwork::Create(const Model::DeepFm& spec,
                                                               const ModelInputs& inputs,
                                                               TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.deepfm.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.deepfm.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.deepfm.hidden", spec.hidden()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.deepfm", inputs.shape.field_count));
  PAWL_RETURN_IF_ERROR(CheckInputWidth(
      "model.deepfm",
      uint64_t{inputs.shape.field_count} * spec.dim() + inputs.shape.numeric_count));
  PAWL_RETURN_IF_ERROR(CheckOneDim(inputs.layout, spec.dim()));
  return absl::WrapUnique(new DeepFmNetwork(spec, inputs, tables));
}

DeepFmNetwork::DeepFmNetwork(const Model::DeepFm& spec, const ModelInputs& inputs,
                             TableList& tables)
    : columns_(AddWeightsAndVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables)),
      linear_(inputs.shape, columns_.weights, LinearPart::Bias::kYes, tables),
      embedding_(inputs.layout, columns_.vectors),
      mlp_("mlp", embedding_.width() + inputs.shape.numeric_count,
           MlpLayers::Widths(spec.hidden(), 1), MlpLayers::LastLayer::kLinear, tables) {}

absl::Status DeepFmNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_RETURN_IF_ERROR(linear_.Forward(step, outputs));
  PAWL_ASSIGN_OR_RETURN(inputs_, step.Allocate(embedding_.width() + step.numerics.columns));
  PAWL_ASSIGN_OR_RETURN(sums_, step.Allocate(embedding_.dim()));
  const Matrix vectors = inputs_.Columns(0, embedding_.width());
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, vectors));
  step.stream.Copy(step.numerics, Write::kReplace,
                   inputs_.Columns(embedding_.width(), step.numerics.columns));
  step.stream.SumOfDots(vectors, embedding_.dim(), sums_, outputs.data);
  return mlp_.Forward(step, inputs_, Write::kAdd, outputs);
}

absl::Status DeepFmNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_RETURN_IF_ERROR(linear_.Backward(step, output_gradients));
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient, step.Allocate(inputs_.columns));
  PAWL_RETURN_IF_ERROR(mlp_.Backward(step, output_gradients, inputs_gradient));
  const Matrix vectors_gradient = inputs_gradient.Columns(0, embedding_.width());
  step.stream.SumOfDotsBackward(inputs_.Columns(0, embedding_.width()), embedding_.dim(), sums_,
                                output_gradients.data, Write::kAdd, vectors_gradient);
  return embedding_.Backward(step, vectors_gradient);
}

}  // namespace pawl
