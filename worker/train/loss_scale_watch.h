// Notices that a job's loss scale is too large for many of its steps.
#ifndef PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_
#define PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>

namespace pawl {

// A step whose gradients are not finite is computed again with a smaller scale (proto/job.proto,
// Precision). That costs a step's time each; where it happens often the user is told which scale to
// set. Of one rank; not thread-safe.
class LossScaleWatch {
 public:
  // It looks at so many steps at a time, and tells of those of which at least so many were computed
  // again.
  static constexpr uint64_t kSteps = 100;
  static constexpr uint64_t kOften = 10;

  // `scale`: the one that steps begin with.
  explicit LossScaleWatch(float scale) : scale_(scale) {}

  // A step has come to an end with this scale. What is to be logged, if anything: each time after
  // twice as many steps as before, so that the log of the longest job has a few lines of it.
  std::optional<std::string> OnStep(float scale);

 private:
  const float scale_;
  uint64_t steps_ = 0;
  uint64_t fallen_ = 0;
  float lowest_ = 0;
  // Steps that are to pass before the next line.
  uint64_t silent_steps_ = 0;
  uint64_t next_silence_ = kSteps;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_LOSS_SCALE_WATCH_H_
