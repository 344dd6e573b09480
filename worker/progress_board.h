// What the ranks of a process have done so far.
#ifndef PAWL_WORKER_PROGRESS_BOARD_H_
#define PAWL_WORKER_PROGRESS_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "client_lib/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Thread-safe.
class ProgressBoard {
 public:
  // One entry of `first_steps` for each hosted rank: the step it begins with. `publish` gets the
  // new state after each change, in order; it must not block or call back.
  ProgressBoard(std::vector<uint64_t> first_steps, uint64_t steps_total,
                std::function<void(const WorkerProgress&)> publish);

  // The hosted rank number `index` has ended one more step, with so many samples and that sum of their losses.
  void StepEnded(size_t index, uint64_t samples, double loss_sum);

  WorkerProgress progress() const;

 private:
  WorkerProgress ProgressLocked() const PAWL_REQUIRES(mu_);

  const uint64_t steps_total_;
  const std::function<void(const WorkerProgress&)> publish_;

  mutable Mutex mu_;
  std::vector<uint64_t> steps_ PAWL_GUARDED_BY(mu_);
  uint64_t samples_ PAWL_GUARDED_BY(mu_) = 0;
  // Of the last steps, older ones counting less and less.
  double recent_samples_ PAWL_GUARDED_BY(mu_) = 0;
  double recent_loss_sum_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROGRESS_BOARD_H_
