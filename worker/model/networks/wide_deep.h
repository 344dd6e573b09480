// Wide & Deep (Cheng et al. 2016): a linear part plus an MLP over the vectors of the fields and the
// numeric inputs.
#ifndef PAWL_WORKER_MODEL_NETWORKS_WIDE_DEEP_H_
#define PAWL_WORKER_MODEL_NETWORKS_WIDE_DEEP_H_

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

class WideDeepNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::WideDeep& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  WideDeepNetwork(const Model::WideDeep& spec, const ModelInputs& inputs, TableList& tables);

  const SparseParts columns_;
  LinearPart linear_;
  EmbeddingPart embedding_;
  MlpLayers mlp_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_WIDE_DEEP_H_
