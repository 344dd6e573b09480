#include "worker/model/networks/networks.h"

#include "worker/model/networks/deep_fm.h"
#include "worker/model/networks/dlrm.h"
#include "worker/model/networks/factorization_machine.h"
#include "worker/model/networks/logistic_regression.h"
#include "worker/model/networks/matrix_factorization.h"
#include "worker/model/networks/mlp_classifier.h"
#include "worker/model/networks/wide_deep.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(const Model& spec, const DataShape& shape,
                                                       TableList& tables) {
  switch (spec.kind_case()) {
    case Model::kLogisticRegression:
      return LogisticRegressionNetwork::Create(spec.logistic_regression(), shape, tables);
    case Model::kFm:
      return FactorizationMachineNetwork::Create(spec.fm(), shape, tables);
    case Model::kWideDeep:
      return WideDeepNetwork::Create(spec.wide_deep(), shape, tables);
    case Model::kDeepfm:
      return DeepFmNetwork::Create(spec.deepfm(), shape, tables);
    case Model::kDlrm:
      return DlrmNetwork::Create(spec.dlrm(), shape, tables);
    case Model::kMlp:
      return MlpClassifierNetwork::Create(spec.mlp(), shape, tables);
    case Model::kMatrixFactorization:
      return MatrixFactorizationNetwork::Create(spec.matrix_factorization(), shape, tables);
    case Model::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "model: must be one of logistic_regression, fm, wide_deep, deepfm, dlrm, mlp, "
      "matrix_factorization");
}

}  // namespace pawl
