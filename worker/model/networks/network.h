// The differentiable function of a model, from a batch to one or more outputs per sample.
#ifndef PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_
#define PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/device/device.h"
#include "worker/model/model_step.h"

namespace pawl {

// Knows neither loss nor labels. Its parameters are the tables that it added to a TableList on
// creation. Not thread-safe: it keeps intermediate results between Forward and Backward of a step.
class Network {
 public:
  virtual ~Network() = default;

  // Columns of the outputs.
  virtual uint32_t output_count() const { return 1; }

  // Sets outputs[samples, output_count()], which has stride output_count().
  virtual absl::Status Forward(ModelStep& step, Matrix outputs) = 0;

  // Sets step.gradients from output_gradients[samples, output_count()], and finishes each table as
  // soon as possible; the last layer comes first.
  virtual absl::Status Backward(ModelStep& step, Matrix output_gradients) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_NETWORK_H_
