#include "worker/train/step_plan.h"

#include <algorithm>

namespace pawl {

StepPlan::StepPlan(const Job& job, const EpochSteps& epochs, uint64_t restored_step)
    : evaluates_(!job.data().eval().empty()),
      // At most 2^40 (Sampler::kMaxSamples) times 10^6 (kMaxEpochs): no overflow.
      total_steps_(epochs.FirstStepOf(std::max<uint64_t>(job.epochs(), 1))),
      intervals_(job.evaluation().every_steps() == 0 ? epochs
                                                     : EpochSteps(job.evaluation().every_steps())),
      write_back_interval_(std::max<uint64_t>(job.all_reduce().write_back_steps(), 1)) {
  if (job.max_steps() != 0) total_steps_ = std::min(total_steps_, job.max_steps());
  if (job.evaluation().only()) {
    total_steps_ = restored_step;
    // EvaluationNumber(total_steps()) is 1, for a checkpoint of step 0 too.
    intervals_ = EpochSteps(restored_step + 1);
  }
}

uint64_t StepPlan::NextPause(uint64_t steps_done) const {
  if (!evaluates_) return total_steps_;
  const SamplePosition position = intervals_.PositionOf(steps_done);
  const uint64_t left = intervals_.StepsOf(position.epoch) - position.step;
  return left >= total_steps_ - steps_done ? total_steps_ : steps_done + left;
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
  const SamplePosition position = intervals_.PositionOf(steps_done);
  return position.step == 0 && position.epoch > 0 ? position.epoch : position.epoch + 1;
}

}  // namespace pawl
