// Fully connected layers over the numeric inputs, with a single output or one for each class.
#ifndef PAWL_WORKER_MODEL_NETWORKS_MLP_CLASSIFIER_H_
#define PAWL_WORKER_MODEL_NETWORKS_MLP_CLASSIFIER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/table_list.h"

namespace pawl {

class MlpClassifierNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::Mlp& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  uint32_t output_count() const override { return output_count_; }
  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  MlpClassifierNetwork(const Model::Mlp& spec, const ModelInputs& inputs, TableList& tables);

  const uint32_t output_count_;
  MlpLayers mlp_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_MLP_CLASSIFIER_H_
