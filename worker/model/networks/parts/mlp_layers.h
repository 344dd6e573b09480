// Fully connected layers with ReLU between them.
#ifndef PAWL_WORKER_MODEL_NETWORKS_PARTS_MLP_LAYERS_H_
#define PAWL_WORKER_MODEL_NETWORKS_PARTS_MLP_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// Layer i has the tables "<name>/i/weight" [in, out] (Xavier) and "<name>/i/bias" [out] (zero).
//
// Outputs of hidden layers are kept from Forward to Backward unless the step recomputes them. Then
// at most two of them are in memory at a time, and n such layers in a row cost n (n + 1) / 2
// computations of a layer. The caller owns the output of the last layer.
class MlpLayers {
 public:
  // The widths of the hidden layers and the output.
  static std::vector<uint32_t> Widths(const google::protobuf::RepeatedField<uint32_t>& hidden,
                                      uint32_t outputs) {
    std::vector<uint32_t> widths(hidden.begin(), hidden.end());
    widths.push_back(outputs);
    return widths;
  }

  enum class LastLayer { kLinear, kRelu };

  // REQUIRES: widths is not empty.
  MlpLayers(const std::string& name, uint32_t inputs, const std::vector<uint32_t>& widths,
            LastLayer last_layer, TableList& tables);

  // output (+)= the last layer's result. REQUIRES: write is kReplace if the last layer has ReLU.
  absl::Status Forward(ModelStep& step, ConstMatrix input, Write write, Matrix output);

  // Sets the gradients of all layers, last layer first, and of the input if requested. Changes
  // output_gradient if the last layer has ReLU. REQUIRES: the last Forward was of the same step;
  // its input and output are unchanged.
  absl::Status Backward(ModelStep& step, Matrix output_gradient,
                        std::optional<Matrix> input_gradient);

 private:
  struct Layer {
    uint32_t inputs;
    uint32_t outputs;
    size_t weight_table;
    size_t bias_table;
    // From the last Forward; not set if it is recomputed.
    std::optional<ConstMatrix> output;
  };

  // Computes layer i: result = layer(input) + beta * result. beta is 0 or 1.
  void Compute(ModelStep& step, size_t i, ConstMatrix input, float beta, Matrix result) const;
  // Recomputes the output of layer i, which is not the last one, from the nearest kept output below
  // it, into a matrix of step.pool.
  absl::StatusOr<Matrix> Recompute(ModelStep& step, size_t i) const;
  bool HasRelu(size_t i) const { return i + 1 < layers_.size() || last_layer_ == LastLayer::kRelu; }

  const LastLayer last_layer_;
  std::vector<Layer> layers_;
  // From the last Forward.
  ConstMatrix input_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_PARTS_MLP_LAYERS_H_
