// A batch that is computed with in parts.
#ifndef PAWL_WORKER_TRAIN_MICRO_BATCHES_H_
#define PAWL_WORKER_TRAIN_MICRO_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/batch.h"
#include "worker/model/training_model.h"

namespace pawl {

// The gradients of a batch as the sum of those of its parts, added up in their order. Keeps memory
// from call to call. Not thread-safe.
class MicroBatches {
 public:
  // `parts`: job.micro_batches, of which 0 is 1.
  explicit MicroBatches(uint32_t parts) : parts_(parts) {}

  // As TrainingModel::ComputeGradients. A table goes to the sink when its sum is final, its
  // parameters are let in for each part that there is: one for each sample at most. hooks.next is
  // of use where there is one part alone. The loss scale of the result is the lowest. REQUIRES of
  // more than one: no gradients stay in the memory of a device.
  absl::StatusOr<LossSum> ComputeGradients(TrainingModel& model, const Batch& batch,
                                           absl::Span<const absl::Span<const float>> parameters,
                                           float gradient_scale,
                                           absl::Span<const absl::Span<float>> gradients,
                                           const GradientHooks& hooks);

 private:
  const uint32_t parts_;
  Batch part_;
  // Of a part that is not the first.
  std::vector<std::vector<float>> values_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_MICRO_BATCHES_H_
