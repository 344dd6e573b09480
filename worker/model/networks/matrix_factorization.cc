#include "worker/model/networks/matrix_factorization.h"

#include <cmath>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/model/spec_checks.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> MatrixFactorizationNetwork::Create(
    const Model::MatrixFactorization& spec, const ModelInputs& inputs, TableList& tables) {
  PAWL_RETURN_IF_ERROR(CheckEmbeddingDim("model.matrix_factorization.dim", spec.dim()));
  PAWL_RETURN_IF_ERROR(
      CheckInitStddev("model.matrix_factorization.init_stddev", spec.init_stddev()));
  if (!std::isfinite(spec.mean())) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.matrix_factorization.mean: must be finite, is ", spec.mean()));
  }
  if (inputs.shape.field_count != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.matrix_factorization: needs two categorical fields, the user and the "
                     "item, but the data has ",
                     inputs.shape.field_count));
  }
  if (inputs.shape.numeric_count != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.matrix_factorization: takes no numeric inputs, but the data has ",
                     inputs.shape.numeric_count, "; remove them or use fm"));
  }
  PAWL_RETURN_IF_ERROR(CheckOneDim(inputs.layout, spec.dim()));
  return absl::WrapUnique(new MatrixFactorizationNetwork(spec, inputs, tables));
}

MatrixFactorizationNetwork::MatrixFactorizationNetwork(const Model::MatrixFactorization& spec,
                                                       const ModelInputs& inputs, TableList& tables)
    : columns_(AddWeightsAndVectors(inputs.layout, spec.dim(), spec.init_stddev(), tables)),
      linear_(inputs.shape, columns_.weights, LinearPart::Bias::kNo, tables),
      embedding_(inputs.layout, columns_.vectors),
      mean_(spec.mean()) {}

absl::Status MatrixFactorizationNetwork::Forward(ModelStep& step, Matrix outputs) {
  PAWL_RETURN_IF_ERROR(linear_.Forward(step, outputs));
  PAWL_ASSIGN_OR_RETURN(vectors_, step.Allocate(embedding_.width()));
  PAWL_ASSIGN_OR_RETURN(const Matrix dots, step.Allocate(1));
  PAWL_RETURN_IF_ERROR(embedding_.Forward(step, vectors_));
  step.stream.PairwiseDots(vectors_, embedding_.dim(), dots);
  step.stream.Axpy(step.samples, 1, dots.data, outputs.data);
  step.stream.AddConstant(step.samples, mean_, outputs.data);
  return absl::OkStatus();
}

absl::Status MatrixFactorizationNetwork::Backward(ModelStep& step, Matrix output_gradients) {
  PAWL_RETURN_IF_ERROR(linear_.Backward(step, output_gradients));
  PAWL_ASSIGN_OR_RETURN(const Matrix vectors_gradient, step.Allocate(embedding_.width()));
  step.stream.PairwiseDotsBackward(vectors_, embedding_.dim(), output_gradients, Write::kReplace,
                                   vectors_gradient);
  return embedding_.Backward(step, vectors_gradient);
}

}  // namespace pawl
