// How gradients are scaled and corrected before the push, and whether a job's loss scale is too
// large.
#ifndef PAWL_WORKER_TRAIN_GRADIENT_SCALE_H_
#define PAWL_WORKER_TRAIN_GRADIENT_SCALE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "proto/types.pb.h"

namespace pawl {

// The factor that scales the gradient of the sum of a rank's losses before the push.
//
// SYNC: logical_workers / step_samples, rounded to float once. The servers divide the sum over the
// ranks by their number, so the step follows the mean over all its samples. Other modes: 1 /
// rank_samples, because each push is a step of its own. REQUIRES: step_samples and rank_samples
// above 0.
float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples,
                    uint64_t rank_samples);

// Delay compensation (Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay
// compensation", equation 10): g += lambda * g * g * (now - before) for each element. `before`: the
// parameters that the gradient was computed from. REQUIRES: the sizes are equal.
void AddDelayCompensation(float lambda, absl::Span<const float> before, absl::Span<const float> now,
                          absl::Span<float> gradient);

// A step whose gradients are not finite is computed again with a smaller scale (proto/job.proto,
// Precision). Each repetition costs the time of a step, so if it happens often the user is told
// which scale to set. Watches one rank. Not thread-safe.
class LossScaleWatch {
 public:
  // Checks this many steps at a time, and warns if at least kOften of them were repeated.
  static constexpr uint64_t kSteps = 100;
  static constexpr uint64_t kOften = 10;

  // `scale`: the scale that each step starts with.
  explicit LossScaleWatch(float scale) : scale_(scale) {}

  // A step has ended with this scale. Returns a line to log, if any. The interval doubles with each
  // line, so that a long job logs only a few.
  std::optional<std::string> OnStep(float scale);

 private:
  const float scale_;
  uint64_t steps_ = 0;
  uint64_t repeated_ = 0;
  float lowest_ = 0;
  // Steps until the next line is allowed.
  uint64_t silent_steps_ = 0;
  uint64_t next_silence_ = kSteps;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_GRADIENT_SCALE_H_
