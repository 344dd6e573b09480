// How many steps a job has, and after which steps it is evaluated.
#ifndef PAWL_WORKER_TRAIN_STEP_PLAN_H_
#define PAWL_WORKER_TRAIN_STEP_PLAN_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "worker/data/sampler.h"

namespace pawl {

// The same for all ranks: a function of the job and the data size alone. Immutable.
class StepPlan {
 public:
  // A job without `epochs` has one epoch. With evaluation.only the plan ends at `restored_step`,
  // the step of the checkpoint, with evaluation 1.
  StepPlan(const Job& job, const EpochSteps& epochs, uint64_t restored_step = 0);

  uint64_t total_steps() const { return total_steps_; }

  // The first number of steps, greater than `steps_done`, at which training pauses for an
  // evaluation. The last pause is total_steps(), which is also the only one without evaluation
  // data. REQUIRES: steps_done < total_steps().
  uint64_t NextPause(uint64_t steps_done) const;

  // Whether an evaluation follows this many steps.
  bool IsPause(uint64_t steps_done) const;
  // Whether the dense parameters are written to the servers after this many steps. REQUIRES:
  // dense_path: ALLREDUCE.
  bool IsWriteBack(uint64_t steps_done) const;
  // The number (1, 2, ...) of the evaluation after this many steps. REQUIRES: IsPause(steps_done).
  uint64_t EvaluationNumber(uint64_t steps_done) const;

 private:
  bool evaluates_;
  uint64_t total_steps_;
  // The steps between two pauses, as if they were an epoch.
  EpochSteps intervals_;
  uint64_t write_back_interval_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_STEP_PLAN_H_
