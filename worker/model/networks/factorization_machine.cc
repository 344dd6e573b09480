#include "worker/model/networks/factorization_machine.h"

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> FactorizationMachineNetwork::Create(
    const Model::FactorizationMachine& spec, const ModelInputs& inputs, TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.fm.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.fm.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.fm", inputs.shape.field_count));
  PAWL_RETURN_IF_ERROR(CheckOneDim(inputs.layout, spec.dim()));
  return absl::WrapUnique(new FactorizationMachineNetwork(spec, inputs, tables));
}

FactorizationMachineNetwork::FactorizationMachineNetwork(const Model::FactorizationMachine& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables)
    : columns_(AddWeightsAndVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables)),
      linear_(inputs.shape, columns_.weights, LinearPart::Bias::kYes, tables),
      embedding_(inputs.layout, columns_.vectors) {}

absl::Status FactorizationMachineNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_RETURN_IF_ERROR(linear_.Forward(step, outputs));
  PAWL_ASSIGN_OR_RETURN(vectors_, step.Allocate(embedding_.width()));
  PAWL_ASSIGN_OR_RETURN(sums_, step.Allocate(embedding_.dim()));
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, vectors_));
  step.stream.SumOfDots(vectors_, embedding_.dim(), sums_, outputs.data);
  return absl::OkStatus();
}

absl::Status FactorizationMachineNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_RETURN_IF_ERROR(linear_.Backward(step, output_gradients));
  PAWL_ASSIGN_OR_RETURN(const Matrix vectors_gradient, step.Allocate(embedding_.width()));
  step.stream.SumOfDotsBackward(vectors_, embedding_.dim(), sums_, output_gradients.data,
                                Write::kReplace, vectors_gradient);
  return embedding_.Backward(step, vectors_gradient);
}

}  // namespace pawl
