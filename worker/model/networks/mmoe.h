// Multi-gate mixture of experts (Ma et al. 2018), and with one expert the shared-bottom model.
#ifndef PAWL_WORKER_MODEL_NETWORKS_MMOE_H_
#define PAWL_WORKER_MODEL_NETWORKS_MMOE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/networks/parts/embedding_part.h"
#include "worker/model/networks/parts/mlp_layers.h"
#include "worker/model/table_list.h"

namespace pawl {

// Label t has the output tower_t(sum over e of gate_t[e] * expert_e(x)), where gate_t = softmax(x
// G_t
// + b_t) (equations 6 and 7). Layers: "expert/<e>/..." with ReLU, "gate/<t>/0" and "tower/<t>/...".
// With one expert there are no gates.
class MmoeNetwork final : public Network {
 public:
  static absl::StatusOr<std::unique_ptr<Network>> Create(const Model::Mmoe& spec,
                                                         const ModelInputs& inputs,
                                                         TableList& tables);

  uint32_t output_count() const override { return label_count_; }
  absl::Status Forward(ModelStep& step, Matrix outputs) override;
  absl::Status Backward(ModelStep& step, Matrix output_gradients) override;

 private:
  MmoeNetwork(const Model::Mmoe& spec, const ModelInputs& inputs, TableList& tables);

  // The result of expert e in experts_output_ or its gradient.
  Matrix Of(size_t expert, Matrix results) const {
    return results.Columns(expert * expert_width_, expert_width_);
  }
  bool has_gates() const { return !gates_.empty(); }
  // Sets the gradients of the gate of label t, and adds that of the inputs.
  absl::Status GateBackward(ModelStep& step, size_t t, ConstMatrix mixture_gradient,
                            Matrix inputs_gradient);

  const uint32_t label_count_;
  EmbeddingPart embedding_;
  const size_t width_;  // of the inputs
  const size_t expert_width_;
  std::vector<MlpLayers> experts_;
  std::vector<MlpLayers> gates_;   // by label
  std::vector<MlpLayers> towers_;  // by label
  // From the last Forward.
  Matrix expert_outputs_;
  std::vector<Matrix> gate_outputs_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_MMOE_H_
