// Deep interest network (Zhou et al. 2018): an MLP over the vectors of the fields, histories pooled
// by attention, and the numeric inputs.
#ifndef PAWL_WORKER_MODEL_NETWORKS_DIN_H_
#define PAWL_WORKER_MODEL_NETWORKS_DIN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/attention_pooling.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/table_list.h"

namespace pawl {

// The attention of the i-th entry of spec.attention has the layers "attention/i/...". The MLP
// "mlp/..." reads the vectors of the other fields, the histories and the numeric inputs.
class DinNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::Din& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  struct History {
    AttentionPooling pooling;
    FieldLayout::Place target;
    size_t begin;  // its columns in the MLP's inputs
  };

  DinNetwork(const Model::Din& spec, const ModelInputs& inputs, TableList& tables);
  // Adds the tables of the attentions.
  static std::vector<History> MakeHistories(const Model::Din& spec, const FieldLayout& layout,
                                            const SparseParts& columns, size_t begin,
                                            TableList& tables);

  const SparseParts columns_;
  EmbeddingPart embedding_;
  std::vector<History> histories_;
  const size_t width_;  // of the MLP's inputs
  MlpLayers mlp_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_DIN_H_
