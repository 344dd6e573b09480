#include "worker/train/step_plan.h"

#include <algorithm>

namespace pawl {

StepPlan::StepPlan(const Job& job, uint64_t steps_per_epoch, uint64_t restored_step)
    : evaluates_(!job.data().eval().empty()),
      // At most 2^40 (Sampler::kMaxSamples) times 10^6 (kMaxEpochs): no overflow.
      total_steps_(steps_per_epoch * std::max<uint64_t>(job.epochs(), 1)),
      evaluation_interval_(job.evaluation().every_steps() == 0 ? steps_per_epoch
                                                               : job.evaluation().every_steps()),
      write_back_interval_(std::max<uint64_t>(job.all_reduce().write_back_steps(), 1)) {
  if (job.max_steps() != 0) total_steps_ = std::min(total_steps_, job.max_steps());
  if (job.evaluation().only()) {
    total_steps_ = restored_step;
    // EvaluationNumber(total_steps()) is 1, for a checkpoint of step 0 too.
    evaluation_interval_ = restored_step + 1;
  }
}

uint64_t StepPlan::NextPause(uint64_t steps_done) const {
  if (!evaluates_) return total_steps_;
  const uint64_t done_intervals = steps_done / evaluation_interval_;
  if (evaluation_interval_ >= total_steps_ || done_intervals >= total_steps_ / evaluation_interval_)
    return total_steps_;
  return (done_intervals + 1) * evaluation_interval_;
}

bool StepPlan::IsPause(uint64_t steps_done) const {
  return evaluates_ && steps_done > 0 && steps_done <= total_steps_ &&
         NextPause(steps_done - 1) == steps_done;
}

bool StepPlan::IsWriteBack(uint64_t steps_done) const {
  return steps_done > 0 && (steps_done % write_back_interval_ == 0 || steps_done == total_steps_ ||
                            IsPause(steps_done));
}

uint64_t StepPlan::EvaluationNumber(uint64_t steps_done) const {
  const uint64_t whole = steps_done / evaluation_interval_;
  return steps_done % evaluation_interval_ == 0 && whole > 0 ? whole : whole + 1;
}

}  // namespace pawl
