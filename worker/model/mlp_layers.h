// Fully connected layers with ReLU between them.
#ifndef PAWL_WORKER_MODEL_MLP_LAYERS_H_
#define PAWL_WORKER_MODEL_MLP_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"
#include "worker/model/table_list.h"

namespace pawl {

// Layer i has the tables "<name>/i/weight" [in, out] (Xavier) and "<name>/i/bias" [out] (zero).
class MlpLayers {
 public:
  // The widths of hidden layers and of the output.
  static std::vector<uint32_t> Widths(const google::protobuf::RepeatedField<uint32_t>& hidden, uint32_t outputs) {
    std::vector<uint32_t> widths(hidden.begin(), hidden.end());
    widths.push_back(outputs);
    return widths;
  }

  enum class LastLayer { kLinear, kRelu };

  // REQUIRES: widths is not empty.
  MlpLayers(const std::string& name, uint32_t inputs, const std::vector<uint32_t>& widths, LastLayer last_layer,
            TableList& tables);

  // output (+)= the last layer's result. REQUIRES: write is kReplace if the last layer has ReLU.
  absl::Status Forward(ModelStep& step, ConstMatrix input, Write write, Matrix output);

  // Sets the gradients of all layers, last layer first, and that of the input if
  // wanted. Changes output_gradient if the last layer has ReLU.
  // REQUIRES: the last Forward was of the same step; its input and output are unchanged.
  absl::Status Backward(ModelStep& step, Matrix output_gradient, std::optional<Matrix> input_gradient);

 private:
  struct Layer {
    uint32_t inputs;
    uint32_t outputs;
    size_t weight_table;
    size_t bias_table;
    // Of the last Forward.
    ConstMatrix input;
    ConstMatrix output;
  };

  const LastLayer last_layer_;
  std::vector<Layer> layers_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_MLP_LAYERS_H_
