#include "worker/model/networks/dlrm.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {
namespace {

uint64_t VectorCount(const ModelInputs& inputs) {
  return uint64_t{inputs.shape.field_count} + (inputs.shape.numeric_count > 0 ? 1 : 0);
}

// Inputs of the top MLP: the bottom MLP's vector, if any, and the dot products.
uint64_t TopInputs(const Model::Dlrm& spec, const ModelInputs& inputs) {
  const uint64_t vectors = VectorCount(inputs);
  return (inputs.shape.numeric_count > 0 ? spec.dim() : 0) + vectors * (vectors - 1) / 2;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> DlrmNetwork::Create(const Model::Dlrm& spec,
                                                             const ModelInputs& inputs,
                                                             TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.dlrm.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.dlrm.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.dlrm.bottom", spec.bottom()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.dlrm.top", spec.top()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.dlrm", inputs.shape.field_count));
  if (!spec.top().empty() && *spec.top().rbegin() == 1) {
    return absl::InvalidArgumentError(
        "model.dlrm.top: ends with 1, but lists only the hidden layers; remove the 1, the "
        "output is added");
  }
  if (inputs.shape.numeric_count == 0) {
    if (!spec.bottom().empty()) {
      return absl::InvalidArgumentError(
          "model.dlrm.bottom: must be empty, because the data has no numeric inputs");
    }
    if (inputs.shape.field_count < 2) {
      return absl::InvalidArgumentError(
          "model.dlrm: one field without numeric inputs has no pair to interact");
    }
  } else if (spec.bottom().empty() || *spec.bottom().rbegin() != spec.dim()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.dlrm.bottom: its last layer must be as wide as model.dlrm.dim, ", spec.dim(),
        ", is ", spec.bottom().empty() ? "absent" : absl::StrCat(*spec.bottom().rbegin())));
  }
  PAWL_RETURN_IF_ERROR(CheckInputWidth("model.dlrm", TopInputs(spec, inputs)));
  PAWL_RETURN_IF_ERROR(CheckOneDim(inputs.layout, spec.dim()));
  return absl::WrapUnique(new DlrmNetwork(spec, inputs, tables));
}

DlrmNetwork::DlrmNetwork(const Model::Dlrm& spec, const ModelInputs& inputs, TableList& tables)
    : embedding_(inputs.layout,
                 AddVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables).vectors),
      bottom_(inputs.shape.numeric_count > 0
                  ? std::make_optional<MlpLayers>(
                        "bottom", inputs.shape.numeric_count,
                        std::vector<uint32_t>(spec.bottom().begin(), spec.bottom().end()),
                        MlpLayers::LastLayer::kRelu, tables)
                  : std::nullopt),
      top_("top", TopInputs(spec, inputs), MlpLayers::Widths(spec.top(), 1),
           MlpLayers::LastLayer::kLinear, tables) {}

absl::Status DlrmNetwork::Forward(ModelStep& step, Matrix outputs) {
  const size_t dim = embedding_.dim();
  const size_t bottom_width = bottom_.has_value() ? dim : 0;
  PAWL_ASSIGN_OR_RETURN(vectors_, step.Allocate(bottom_width + embedding_.width()));
  PAWL_RETURN_IF_ERROR(
      embedding_.Forward(step, vectors_.Columns(bottom_width, embedding_.width())));
  const Matrix bottom_vector = vectors_.Columns(0, bottom_width);
  if (bottom_.has_value()) {
    PAWL_RETURN_IF_ERROR(bottom_->Forward(step, step.numerics, Write::kReplace, bottom_vector));
  }

  const size_t vector_count = vectors_.columns / dim;
  const size_t dots = vector_count * (vector_count - 1) / 2;
  PAWL_ASSIGN_OR_RETURN(const Matrix top_inputs, step.Allocate(bottom_width + dots));
  step.stream.Copy(bottom_vector, Write::kReplace, top_inputs.Columns(0, bottom_width));
  step.stream.PairwiseDots(vectors_, dim, top_inputs.Columns(bottom_width, dots));
  return top_.Forward(step, top_inputs, Write::kReplace, outputs);
}

absl::Status DlrmNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  const size_t dim = embedding_.dim();
  const size_t bottom_width = bottom_.has_value() ? dim : 0;
  const size_t vector_count = vectors_.columns / dim;
  const size_t dots = vector_count * (vector_count - 1) / 2;
  PAWL_ASSIGN_OR_RETURN(const Matrix top_gradient, step.Allocate(bottom_width + dots));
  PAWL_RETURN_IF_ERROR(top_.Backward(step, output_gradients, top_gradient));

  PAWL_ASSIGN_OR_RETURN(const Matrix vectors_gradient, step.Allocate(vectors_.columns));
  step.stream.PairwiseDotsBackward(vectors_, dim, top_gradient.Columns(bottom_width, dots),
                                   Write::kReplace, vectors_gradient);
  PAWL_RETURN_IF_ERROR(
      embedding_.Backward(step, vectors_gradient.Columns(bottom_width, embedding_.width())));
  if (bottom_.has_value()) {
    const Matrix bottom_gradient = vectors_gradient.Columns(0, bottom_width);
    step.stream.Copy(top_gradient.Columns(0, bottom_width), Write::kAdd, bottom_gradient);
    PAWL_RETURN_IF_ERROR(bottom_->Backward(step, bottom_gradient, std::nullopt));
  }
  return absl::OkStatus();
}

}  // namespace pawl
