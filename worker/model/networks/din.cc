#include "worker/model/networks/din.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> DinNetwork::Create(const Model::Din& spec,
                                                            const ModelInputs& inputs,
                                                            TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.din.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.din.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.din.hidden", spec.hidden()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.din.attention_hidden", spec.attention_hidden()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.din", inputs.shape.field_count));
  if (spec.attention().empty()) {
    return absl::InvalidArgumentError(
        "model.din.attention: is empty; name a history and its target, or use wide_deep");
  }
  PAWL_RETURN_IF_ERROR(CheckInputWidth(
      "model.din", VectorsWidth(inputs.layout, spec.dim()) + inputs.shape.numeric_count));
  return absl::WrapUnique(new DinNetwork(spec, inputs, tables));
}

std::vector<DinNetwork::History> DinNetwork::MakeHistories(const Model::Din& spec,
                                                           const FieldLayout& layout,
                                                           const SparseParts& columns, size_t begin,
                                                           TableList& tables) {
  std::vector<History> histories;
  for (const FieldLayout::Attention& attention : layout.attentions) {
    const SparseColumns& vectors = columns.vectors[attention.history.field_set];
    histories.push_back({AttentionPooling(absl::StrCat("attention/", histories.size()), vectors,
                                          MlpLayers::Widths(spec.attention_hidden(), 1), tables),
                         attention.target, begin});
    begin += vectors.count;
  }
  return histories;
}

DinNetwork::DinNetwork(const Model::Din& spec, const ModelInputs& inputs, TableList& tables)
    : columns_(AddVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables)),
      embedding_(inputs.layout, columns_.vectors),
      histories_(MakeHistories(spec, inputs.layout, columns_, embedding_.width(), tables)),
      width_(VectorsWidth(inputs.layout, spec.dim()) + inputs.shape.numeric_count),
      mlp_("mlp", static_cast<uint32_t>(width_), MlpLayers::Widths(spec.hidden(), 1),
           MlpLayers::LastLayer::kLinear, tables) {}

absl::Status DinNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs, step.Allocate(width_));
  const Matrix vectors = inputs.Columns(0, embedding_.width());
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, vectors));
  for (History& history : histories_) {
    PAWL_RETURN_IF_ERROR(
        history.pooling.Forward(step, embedding_.VectorOf(history.target, vectors),
                                inputs.Columns(history.begin, history.pooling.dim())));
  }
  const size_t numerics = step.numerics.columns;
  step.stream.Copy(step.numerics, Write::kReplace, inputs.Columns(width_ - numerics, numerics));
  return mlp_.Forward(step, inputs, Write::kReplace, outputs);
}

absl::Status DinNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient, step.Allocate(width_));
  PAWL_RETURN_IF_ERROR(mlp_.Backward(step, output_gradients, inputs_gradient));
  const Matrix vectors_gradient = inputs_gradient.Columns(0, embedding_.width());
  for (size_t i = histories_.size(); i-- > 0;) {
    History& history = histories_[i];
    PAWL_RETURN_IF_ERROR(history.pooling.Backward(
        step, inputs_gradient.Columns(history.begin, history.pooling.dim()),
        embedding_.VectorOf(history.target, vectors_gradient)));
  }
  return embedding_.Backward(step, vectors_gradient);
}

}  // namespace pawl
