// What has been done of the ranks that a process hosts.
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
  // `publish` gets the new state after each change, in order; it must not block or call back.
  ProgressBoard(uint64_t steps_total, std::function<void(const WorkerProgress&)> publish);

  // The process hosts the rank, which has ended so many steps with so many samples, whoever did it.
  void Begin(uint32_t rank, uint64_t steps, uint64_t samples);
  // The rank is another's; what was done of it stays known. REQUIRES: Begin(rank).
  void End(uint32_t rank);

  // The rank has ended one more step, with so many samples and that sum of their losses. REQUIRES:
  // Begin(rank).
  void StepEnded(uint32_t rank, uint64_t samples, double loss_sum);

  // A rank has trained for so long, and has waited for so long of that. Goes out with the next
  // change.
  void Spent(double training_s, double waiting_s);

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
  // In this process.
  uint64_t samples_ PAWL_GUARDED_BY(mu_) = 0;
  double training_s_ PAWL_GUARDED_BY(mu_) = 0;
  double waiting_s_ PAWL_GUARDED_BY(mu_) = 0;
  // Of the last steps, older ones counting less and less.
  double recent_samples_ PAWL_GUARDED_BY(mu_) = 0;
  double recent_loss_sum_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_PROGRESS_BOARD_H_
