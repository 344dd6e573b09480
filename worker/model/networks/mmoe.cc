#include "worker/model/networks/mmoe.h"

#include <cmath>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> MmoeNetwork::Create(const Model::Mmoe& spec,
                                                             const ModelInputs& inputs,
                                                             TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.mmoe.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.mmoe.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckCount("model.mmoe.experts", spec.experts(), kMaxExperts));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.mmoe.expert", spec.expert()));
  PAWL_RETURN_IF_ERROR(CheckLayerWidths("model.mmoe.tower", spec.tower()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.mmoe", inputs.shape.field_count));
  if (spec.expert().empty()) {
    return absl::InvalidArgumentError(
        "model.mmoe.expert: is empty; it must have the widths of an expert's layers");
  }
  const uint32_t labels = inputs.shape.label_count;
  if (!spec.label_weights().empty() && static_cast<uint32_t>(spec.label_weights_size()) != labels) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.mmoe.label_weights: has ", spec.label_weights_size(),
                     " entries, but the data has ", labels, " labels"));
  }
  for (const float weight : spec.label_weights()) {
    if (std::isfinite(weight) && weight >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model.mmoe.label_weights: has ", weight, "; must be at least 0"));
  }
  PAWL_RETURN_IF_ERROR(CheckInputWidth(
      "model.mmoe", VectorsWidth(inputs.layout, spec.dim()) + inputs.shape.numeric_count));
  return absl::WrapUnique(new MmoeNetwork(spec, inputs, tables));
}

MmoeNetwork::MmoeNetwork(const Model::Mmoe& spec, const ModelInputs& inputs, TableList& tables)
    : label_count_(inputs.shape.label_count),
      embedding_(inputs.layout,
                 AddVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables).vectors),
      width_(embedding_.width() + inputs.shape.numeric_count),
      expert_width_(*spec.expert().rbegin()) {
  const auto width = static_cast<uint32_t>(width_);
  for (uint32_t e = 0; e < spec.experts(); ++e) {
    experts_.emplace_back(absl::StrCat("expert/", e), width,
                          std::vector<uint32_t>(spec.expert().begin(), spec.expert().end()),
                          MlpLayers::LastLayer::kRelu, tables);
  }
  for (uint32_t t = 0; t < label_count_; ++t) {
    if (spec.experts() > 1) {
      gates_.emplace_back(absl::StrCat("gate/", t), width, std::vector<uint32_t>{spec.experts()},
                          MlpLayers::LastLayer::kLinear, tables);
    }
    towers_.emplace_back(absl::StrCat("tower/", t), static_cast<uint32_t>(expert_width_),
                         MlpLayers::Widths(spec.tower(), 1), MlpLayers::LastLayer::kLinear, tables);
  }
  gate_outputs_.resize(gates_.size());
}

absl::Status MmoeNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs, step.Allocate(width_));
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, inputs.Columns(0, embedding_.width())));
  step.stream.Copy(step.numerics, Write::kReplace,
                   inputs.Columns(embedding_.width(), step.numerics.columns));
  PAWL_ASSIGN_OR_RETURN(expert_outputs_, step.Allocate(experts_.size() * expert_width_));
  for (size_t e = 0; e < experts_.size(); ++e) {
    PAWL_RETURN_IF_ERROR(
        experts_[e].Forward(step, inputs, Write::kReplace, Of(e, expert_outputs_)));
  }
  for (size_t t = 0; t < towers_.size(); ++t) {
    Matrix mixture = expert_outputs_;
    if (has_gates()) {
      Matrix& gate = gate_outputs_[t];
      PAWL_ASSIGN_OR_RETURN(gate, step.Allocate(experts_.size()));
      PAWL_RETURN_IF_ERROR(gates_[t].Forward(step, inputs, Write::kReplace, gate));
      step.stream.Softmax(gate, gate);
      PAWL_ASSIGN_OR_RETURN(mixture, step.Allocate(expert_width_));
      for (size_t e = 0; e < experts_.size(); ++e) {
        step.stream.Multiply(Of(e, expert_outputs_), gate.Columns(e, 1),
                             e == 0 ? Write::kReplace : Write::kAdd, mixture);
      }
    }
    PAWL_RETURN_IF_ERROR(towers_[t].Forward(step, mixture, Write::kReplace, outputs.Columns(t, 1)));
  }
  return absl::OkStatus();
}

absl::Status MmoeNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_ASSIGN_OR_RETURN(const Matrix experts_gradient,
                        step.Allocate(experts_.size() * expert_width_));
  PAWL_ASSIGN_OR_RETURN(const Matrix inputs_gradient, step.Allocate(width_));
  PAWL_ASSIGN_OR_RETURN(const Matrix mixture_gradient, step.Allocate(expert_width_));
  PAWL_ASSIGN_OR_RETURN(const Matrix part, step.Allocate(width_));
  step.stream.Zero(inputs_gradient.data, inputs_gradient.rows * width_ * sizeof(float));
  for (size_t t = towers_.size(); t-- > 0;) {
    const Write write = t + 1 == towers_.size() ? Write::kReplace : Write::kAdd;
    PAWL_RETURN_IF_ERROR(
        towers_[t].Backward(step, output_gradients.Columns(t, 1), mixture_gradient));
    if (!has_gates()) {
      step.stream.Copy(mixture_gradient, write, experts_gradient);
      continue;
    }
    for (size_t e = 0; e < experts_.size(); ++e) {
      step.stream.Multiply(mixture_gradient, gate_outputs_[t].Columns(e, 1), write,
                           Of(e, experts_gradient));
    }
    PAWL_RETURN_IF_ERROR(GateBackward(step, t, mixture_gradient, inputs_gradient));
  }
  for (size_t e = experts_.size(); e-- > 0;) {
    PAWL_RETURN_IF_ERROR(experts_[e].Backward(step, Of(e, experts_gradient), part));
    step.stream.Copy(part, Write::kAdd, inputs_gradient);
  }
  return embedding_.Backward(step, inputs_gradient.Columns(0, embedding_.width()));
}

absl::Status MmoeNetwork::GateBackward(ModelStep& step, size_t t, ConstMatrix mixture_gradient,
                                       Matrix inputs_gradient) {
  // With p = softmax(z): dz = p * (dp - p . dp).
  const Matrix& gate = gate_outputs_[t];
  PAWL_ASSIGN_OR_RETURN(const Matrix gradient, step.pool.Take(gate.rows, gate.columns));
  PAWL_ASSIGN_OR_RETURN(const Matrix dot, step.pool.Take(gate.rows, 1));
  PAWL_ASSIGN_OR_RETURN(const Matrix part, step.pool.Take(gate.rows, width_));
  for (size_t e = 0; e < gate.columns; ++e) {
    step.stream.RowDots(mixture_gradient, Of(e, expert_outputs_), gradient.Columns(e, 1));
  }
  step.stream.RowDots(gate, gradient, dot);
  step.stream.Scale(dot.rows, -1, dot.data);
  step.stream.Multiply(gate, gradient, Write::kReplace, gradient);
  step.stream.Multiply(gate, dot, Write::kAdd, gradient);
  PAWL_RETURN_IF_ERROR(gates_[t].Backward(step, gradient, part));
  step.stream.Copy(part, Write::kAdd, inputs_gradient);
  for (const Matrix& taken : {gradient, dot, part}) step.pool.GiveBack(taken);
  return absl::OkStatus();
}

}  // namespace pawl
