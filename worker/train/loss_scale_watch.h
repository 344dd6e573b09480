// Warns when a job's loss scale is too large for many of its steps.
#ifndef PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_
#define PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>

namespace pawl {

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

#endif  // PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_
