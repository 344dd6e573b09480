#include "worker/model/networks/mlp_classifier.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> MlpClassifierNetwork::Create(const Model::Mlp& spec,
                                                                      const ModelInputs& inputs,
                                                                      TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.mlp.hidden", spec.hidden()));
  if (spec.classes() > kMaxClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.mlp.classes: must be at most ", kMaxClasses, ", is ", spec.classes()));
  }
  if (inputs.shape.numeric_count == 0) {
    return absl::InvalidArgumentError("model.mlp: needs numeric inputs, but the data has none");
  }
  if (inputs.shape.field_count > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.mlp: takes only numeric inputs, but the data has ", inputs.shape.field_count,
        " categorical fields; remove them or use wide_deep"));
  }
  PAWL_RETURN_IF_ERROR(CheckInputWidth("model.mlp", inputs.shape.numeric_count));
  return absl::WrapUnique(new MlpClassifierNetwork(spec, inputs, tables));
}

MlpClassifierNetwork::MlpClassifierNetwork(const Model::Mlp& spec, const ModelInputs& inputs,
                                           TableList& tables)
    : output_count_(std::max(spec.classes(), 1u)),
      mlp_("mlp", inputs.shape.numeric_count, MlpLayers::Widths(spec.hidden(), output_count_),
           MlpLayers::LastLayer::kLinear, tables) {}

absl::Status MlpClassifierNetwork::Forward(ModelStep& step, Matrix outputs) {
  return mlp_.Forward(step, step.numerics, Write::kReplace, outputs);
}

absl::Status MlpClassifierNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  return mlp_.Backward(step, output_gradients, std::nullopt);
}

}  // namespace pawl
