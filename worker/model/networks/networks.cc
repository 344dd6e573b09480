#include "worker/model/networks/networks.h"

#include "worker/model/networks/dcn.h"
#include "worker/model/networks/deep_fm.h"
#include "worker/model/networks/din.h"
#include "worker/model/networks/dlrm.h"
#include "worker/model/networks/factorization_machine.h"
#include "worker/model/networks/logistic_regression.h"
#include "worker/model/networks/matrix_factorization.h"
#include "worker/model/networks/mlp_classifier.h"
#include "worker/model/networks/mmoe.h"
#include "worker/model/networks/wide_deep.h"

namespace pawl {

absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(const Model& spec, const ModelInputs& inputs,
                                                       TableList& tables) {
  switch (spec.kind_case()) {
    case Model::kLogisticRegression:
      return LogisticRegressionNetwork::Create(spec.logistic_regression(), inputs, tables);
    case Model::kFm:
      return FactorizationMachineNetwork::Create(spec.fm(), inputs, tables);
    case Model::kWideDeep:
      return WideDeepNetwork::Create(spec.wide_deep(), inputs, tables);
    case Model::kDeepfm:
      return DeepFmNetwork::Create(spec.deepfm(), inputs, tables);
    case Model::kDlrm:
      return DlrmNetwork::Create(spec.dlrm(), inputs, tables);
    case Model::kMlp:
      return MlpClassifierNetwork::Create(spec.mlp(), inputs, tables);
    case Model::kMatrixFactorization:
      return MatrixFactorizationNetwork::Create(spec.matrix_factorization(), inputs, tables);
    case Model::kDcn:
      return DcnNetwork::Create(spec.dcn(), inputs, tables);
    case Model::kMmoe:
      return MmoeNetwork::Create(spec.mmoe(), inputs, tables);
    case Model::kDin:
      return DinNetwork::Create(spec.din(), inputs, tables);
    case Model::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "model: must be one of logistic_regression, fm, wide_deep, deepfm, dlrm, mlp, "
      "matrix_factorization, dcn, mmoe, din");
}

}  // namespace pawl
