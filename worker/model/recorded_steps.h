// A model's recorded steps, which are replayed instead of enqueued operation by operation.
#ifndef PAWL_WORKER_MODEL_RECORDED_STEPS_H_
#define PAWL_WORKER_MODEL_RECORDED_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "worker/device/device.h"

namespace pawl {

// Everything that determines the operations of a step: steps with equal keys are the same
// computation.
struct StepKey {
  const float* numerics = nullptr;
  const float* labels = nullptr;
  const float* weights = nullptr;
  size_t samples = 0;
  float gradient_scale = 0;
  // The workspace's layout, which determines the remaining addresses.
  uint64_t layout = 0;
  // The spans that stay on the device; those of parameters alternate.
  std::vector<const float*> staying;

  friend bool operator==(const StepKey&, const StepKey&) = default;
};

// The steps of the workspace's current layout, oldest first. Not thread-safe.
class RecordedSteps {
 public:
  // For two batch buffers, two parameter buffers, two step sizes (the last step of an epoch is
  // shorter) and a dozen loss scales.
  static constexpr size_t kMaxSteps = 96;

  struct Step {
    StepKey key;
    // Null after only one such step, which was not recorded: in the first step of a size the
    // workspace grows and the device prepares what its operations need.
    std::unique_ptr<Recording> recording;
    double* loss_sum = nullptr;
    // Tables in the order in which their gradients become final.
    std::vector<size_t> finished;
  };

  // Null if no such step has been done. Valid until Remember.
  Step* Find(const StepKey& key);
  // A step was done without a recording. Drops the steps of other layouts, which are never found
  // again.
  void Remember(StepKey key);

 private:
  std::deque<Step> steps_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_RECORDED_STEPS_H_
