// DLRM (Naumov et al. 2019): a bottom MLP turns the numeric inputs into one more vector beside
// those of the fields. A top MLP takes that vector and the dot products of all pairs.
#ifndef PAWL_WORKER_MODEL_NETWORKS_DLRM_H_
#define PAWL_WORKER_MODEL_NETWORKS_DLRM_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/networks/parts/sparse_columns.h"
#include "worker/model/table_list.h"

namespace pawl {

class DlrmNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::Dlrm& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  DlrmNetwork(const Model::Dlrm& spec, const ModelInputs& inputs, TableList& tables);

  EmbeddingPart embedding_;
  std::optional<MlpLayers> bottom_;
  MlpLayers top_;
  // From the last Forward: the bottom MLP's vector, if any, and those of the fields.
  Matrix vectors_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_DLRM_H_
