// The steps of a model that are played instead of given to the device one operation after the
// other.
#ifndef PAWL_WORKER_MODEL_RECORDED_STEPS_H_
#define PAWL_WORKER_MODEL_RECORDED_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "worker/device/device.h"

namespace pawl {

// All that the operations of a step were given: of equal ones the computation is the same.
struct StepKey {
  const float* numerics = nullptr;
  const float* labels = nullptr;
  size_t samples = 0;
  float gradient_scale = 0;
  // Of the workspace, which gave the rest of the memory.
  uint64_t layout = 0;
  // The spans that stay on the device: those of parameters take turns.
  std::vector<const float*> staying;

  friend bool operator==(const StepKey&, const StepKey&) = default;
};

// Those of the workspace's present layout, the oldest first. Not thread-safe.
class RecordedSteps {
 public:
  // Of two batches' places, two of the parameters, steps of two sizes (the last of an epoch is
  // shorter) and a dozen loss scales.
  static constexpr size_t kMaxSteps = 96;

  struct Step {
    StepKey key;
    // Null when there was one such step yet, which was not recorded: the first one of a size makes
    // the workspace grow, and the device prepare what its operations need.
    std::unique_ptr<Recording> recording;
    double* loss_sum = nullptr;
    // Tables in the order in which their gradients are final.
    std::vector<size_t> finished;
  };

  // Null: no such step has been done. Good until Remember.
  Step* Find(const StepKey& key);
  // Such a step has been done without a recording. Those of other layouts are never found again,
  // and go.
  void Remember(StepKey key);

 private:
  std::deque<Step> steps_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_RECORDED_STEPS_H_
