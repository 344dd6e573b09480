// DCN v2 (Wang et al. 2021): cross layers over the vectors of the fields and the numeric inputs,
// and an MLP behind or beside them.
#ifndef PAWL_WORKER_MODEL_NETWORKS_DCN_H_
#define PAWL_WORKER_MODEL_NETWORKS_DCN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/cross_layers.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/table_list.h"

namespace pawl {

// The tables: those of the embeddings and of CrossLayers, "mlp/..." for the hidden layers, and the
// layer "output/0", which reads the MLP's result and, in the parallel form, that of the cross
// layers before it.
class DcnNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::Dcn& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  DcnNetwork(const Model::Dcn& spec, const ModelInputs& inputs, TableList& tables);

  const bool is_parallel_;
  EmbeddingPart embedding_;
  const size_t width_;  // of the inputs
  CrossLayers cross_;
  // Not set without hidden layers.
  std::optional<MlpLayers> mlp_;
  const size_t mlp_width_;  // of the MLP's result
  MlpLayers output_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_DCN_H_
