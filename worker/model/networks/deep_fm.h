// DeepFM (Guo et al. 2017): a factorization machine plus an MLP over the same vectors and the
// numeric inputs.
#ifndef PAWL_WORKER_MODEL_NETWORKS_DEEP_FM_H_
#define PAWL_WORKER_MODEL_NETWORKS_DEEP_FM_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/linear_part.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/networks/parts/sparse_columns.h"
#include "worker/model/table_list.h"

namespace pawl {

class DeepFmNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::DeepFm& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  DeepFmNetwork(const Model::DeepFm& spec, const ModelInputs& inputs, TableList& tables);

  const SparseParts columns_;
  LinearPart linear_;
  EmbeddingPart embedding_;
  MlpLayers mlp_;
  // From the last Forward.
  Matrix inputs_;
  Matrix sums_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_DEEP_FM_H_
