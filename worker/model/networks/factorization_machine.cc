#include "worker/model/networks/factorization_machine.h"

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> FactorizationMachineNetwork::Create(
    const Model::FactorizationMachine& spec, const DataShape& shape, TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.fm.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(CheckInitStddev("model.fm.init_stddev", spec.init_stddev()));
  PAWL_RETURN_IF_ERROR(CheckHasFields("model.fm", shape.field_count));
  return absl::WrapUnique(new FactorizationMachineNetwork(spec, shape, tables));
}

FactorizationMachineNetwork::FactorizationMachineNetwork(const Model::FactorizationMachine& spec,
                                                         const DataShape& shape, TableList& tables)
    : columns_(AddWeightAndVector(spec.dim(), spec.init_stddev(), tables)),
      linear_(shape, columns_.weight, LinearPart::Bias::kYes, tables),
      embedding_(shape.field_count, columns_.vector) {}

absl::Status FactorizationMachineNetwork::Forward(ModelStep& step, Matrix outputs) {
  linear_.Forward(step, outputs);
  PAWL_ASSIGN_OR_RETURN(vectors_, step.Allocate(embedding_.width()));
  PAWL_ASSIGN_OR_RETURN(sums_, step.Allocate(embedding_.dim()));
  embedding_.Forward(step, vectors_);
  step.stream.SumOfDots(vectors_, embedding_.dim(), sums_, outputs.data);
  return absl::OkStatus();
}

absl::Status FactorizationMachineNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  linear_.Backward(step, output_gradients);
  PAWL_ASSIGN_OR_RETURN(const Matrix vectors_gradient, step.Allocate(embedding_.width()));
  step.stream.SumOfDotsBackward(vectors_, embedding_.dim(), sums_, output_gradients.data,
                                Write::kReplace, vectors_gradient);
  embedding_.Backward(step, vectors_gradient);
  return absl::OkStatus();
}

}  // namespace pawl
