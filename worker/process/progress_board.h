// The progress of the ranks that a process hosts.
#ifndef PAWL_WORKER_PROCESS_PROGRESS_BOARD_H_
#define PAWL_WORKER_PROCESS_PROGRESS_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>

#include "client_lib/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Thread-safe.
class ProgressBoard {
 public:
  // Calls `publish` with the new state after each change, in order. `publish` must not block or
  // call back.
  ProgressBoard(uint64_t steps_total, std::function<void(const WorkerProgress&)> publish);

  // The process hosts the rank, which has done this many steps and samples on all its hosts so far.
  void AddRank(uint32_t rank, uint64_t steps, uint64_t samples);
  // The process no longer hosts the rank. Its counts stay. REQUIRES: AddRank(rank).
  void RemoveRank(uint32_t rank);

  // The rank has ended one more step, with this many samples and this sum of their losses.
  // REQUIRES: AddRank(rank).
  void OnStepEnded(uint32_t rank, uint64_t samples, double loss_sum);

  // A rank has trained for `training_s` seconds, `waiting_s` of them waiting. Published with the
  // next change.
  void AddTime(double training_s, double waiting_s);

  WorkerProgress progress() const;

 private:
  WorkerProgress ProgressLocked() const PAWL_REQUIRES(mu_);

  const uint64_t steps_total_;
  const std::function<void(const WorkerProgress&)> publish_;

  mutable Mutex mu_;
  struct Rank {
    bool hosted = false;
    uint64_t steps = 0;
    uint64_t samples = 0;
  };
  std::map<uint32_t, Rank> ranks_ PAWL_GUARDED_BY(mu_);
  // Counted in this process alone.
  uint64_t samples_ PAWL_GUARDED_BY(mu_) = 0;
  double training_s_ PAWL_GUARDED_BY(mu_) = 0;
  double waiting_s_ PAWL_GUARDED_BY(mu_) = 0;
  // Exponentially decaying sums over the last steps.
  double recent_samples_ PAWL_GUARDED_BY(mu_) = 0;
  double recent_loss_sum_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_PROGRESS_BOARD_H_
