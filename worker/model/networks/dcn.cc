#include "worker/model/networks/dcn.h"

#include <optional>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {
namespace {

// Inputs of the output layer: the MLP's result, if there is an MLP, and that of the cross layers,
// if no MLP reads it.
size_t OutputInputs(const Model::Dcn& spec, size_t width) {
  if (spec.hidden().empty()) return width;
  return *spec.hidden().rbegin() + (spec.parallel() ? width : 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> DcnNetwork::Create(const Model::Dcn& spec,
                                                            const ModelInputs& inputs,
                                                            TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.dcn.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.dcn.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.dcn.hidden", spec.hidden()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.dcn", inputs.shape.field_count));
  PAWL_RETURN_IF_ERROR(CheckCount("model.dcn.cross_layers", spec.cross_layers(), kMaxHiddenLayers));
  const uint64_t width = VectorsWidth(inputs.layout, spec.dim()) + inputs.shape.numeric_count;
  PAWL_RETURN_IF_ERROR(CheckInputWidth("model.dcn", width));
  if (spec.rank() == 0 && width > kMaxLayerWidth) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.dcn: would multiply its ", width, " inputs by a square matrix; with ",
                     "more than ", kMaxLayerWidth, " set model.dcn.rank"));
  }
  return absl::WrapUnique(new DcnNetwork(spec, inputs, tables));
}

DcnNetwork::DcnNetwork(const Model::Dcn& spec, const ModelInputs& inputs, TableList& tables)
    : is_parallel_(spec.parallel()),
      embedding_(inputs.layout,
                 AddVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables).vectors),
      width_(embedding_.width() + inputs.shape.numeric_count),
      cross_(width_, spec.cross_layers(), spec.rank(), tables),
      mlp_(spec.hidden().empty()
               ? std::nullopt
               : std::make_optional<MlpLayers>(
                     "mlp", static_cast<uint32_t>(width_),
                     std::vector<uint32_t>(spec.hidden().begin(), spec.hidden().end()),
                     MlpLayers::LastLayer::kRelu, tables)),
      mlp_width_(spec.hidden().empty() ? 0 : *spec.hidden().rbegin()),
      output_("output", static_cast<uint32_t>(OutputInputs(spec, width_)), {1},
              MlpLayers::LastLayer::kLinear, tables) {}

absl::Status DcnNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs, step.Allocate(width_));
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, inputs.Columns(0, embedding_.width())));
  step.stream.Copy(step.numerics, Write::kReplace,
                   inputs.Columns(embedding_.width(), step.numerics.columns));
  PAWL_ASSIGN_OR_RETURN(const Matrix crossed, cross_.Forward(step, inputs));
  if (!mlp_.has_value()) return output_.Forward(step, crossed, Write::kReplace, outputs);
  const size_t crossed_width = is_parallel_ ? width_ : 0;
  PAWL_ASSIGN_OR_RETURN(const Matrix last, step.Allocate(crossed_width + mlp_width_));
  step.stream.Copy(crossed.Columns(0, crossed_width), Write::kReplace,
                   last.Columns(0, crossed_width));
  PAWL_RETURN_IF_ERROR(mlp_->Forward(step, is_parallel_ ? inputs : crossed, Write::kReplace,
                                     last.Columns(crossed_width, mlp_width_)));
  return output_.Forward(step, last, Write::kReplace, outputs);
}

absl::Status DcnNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  const size_t crossed_width = is_parallel_ || !mlp_.has_value() ? width_ : 0;
  PAWL_ASSIGN_OR_RETURN(const Matrix last_gradient, step.Allocate(crossed_width + mlp_width_));
  PAWL_RETURN_IF_ERROR(output_.Backward(step, output_gradients, last_gradient));
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient, step.Allocate(width_));
  if (!mlp_.has_value()) {
    PAWL_RETURN_IF_ERROR(cross_.Backward(step, last_gradient, inputs_gradient));
    return embedding_.Backward(step, inputs_gradient.Columns(0, embedding_.width()));
  }
  PAWL_ASSIGN_OR_RETURN(const Matrix mlp_gradient, step.Allocate(width_));
  PAWL_RETURN_IF_ERROR(
      mlp_->Backward(step, last_gradient.Columns(crossed_width, mlp_width_), mlp_gradient));
  if (is_parallel_) {
    PAWL_RETURN_IF_ERROR(
        cross_.Backward(step, last_gradient.Columns(0, crossed_width), inputs_gradient));
    step.stream.Copy(mlp_gradient, Write::kAdd, inputs_gradient);
  } else {
    PAWL_RETURN_IF_ERROR(cross_.Backward(step, mlp_gradient, inputs_gradient));
  }
  return embedding_.Backward(step, inputs_gradient.Columns(0, embedding_.width()));
}

}  // namespace pawl
