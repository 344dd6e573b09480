// The differentiable function inside a model: from a batch to one or more outputs for each sample.
#ifndef PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_
#define PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"

namespace pawl {

// Knows neither loss nor labels. Its parameters are tables that it has put on a
// TableList when it was created. Not thread-safe: it keeps intermediate results
// between Forward and Backward of the same step.
class Network {
 public:
  virtual ~Network() = default;

  // Columns of the outputs.
  virtual uint32_t output_count() const { return 1; }

  // Sets outputs[samples, output_count()], which has stride output_count().
  virtual absl::Status Forward(ModelStep& step, Matrix outputs) = 0;

  // Sets step.gradients from output_gradients[samples, output_count()], and finishes
  // each table as soon as it can; of layers, the last one first.
  virtual absl::Status Backward(ModelStep& step, Matrix output_gradients) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_
