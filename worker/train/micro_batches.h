// Computes a batch in parts (job.micro_batches), so that a step needs less memory.
#ifndef PAWL_WORKER_TRAIN_MICRO_BATCHES_H_
#define PAWL_WORKER_TRAIN_MICRO_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/batch.h"
#include "worker/model/training_model.h"

namespace pawl {

// Computes the gradients of a batch as the sum of its parts' gradients, added in order. Keeps
// memory between calls. Not thread-safe.
class MicroBatches {
 public:
  // `parts`: job.micro_batches; 0 means 1.
  explicit MicroBatches(uint32_t parts) : parts_(parts) {}

  // As TrainingModel::ComputeGradients. A table goes to the sink when its sum is final. Its
  // parameters pass the gate once per part; a batch has at most one part per sample. hooks.next is
  // used only with a single part. The result's loss scale is the lowest of the parts. REQUIRES,
  // with more than one part: no gradients stay in the memory of a device.
  absl::StatusOr<LossSum> ComputeGradients(TrainingModel& model, const Batch& batch,
                                           absl::Span<const absl::Span<const float>> parameters,
                                           float gradient_scale,
                                           absl::Span<const absl::Span<float>> gradients,
                                           const GradientHooks& hooks);

 private:
  const uint32_t parts_;
  Batch part_;
  // Gradients of the parts after the first.
  std::vector<std::vector<float>> values_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_MICRO_BATCHES_H_
