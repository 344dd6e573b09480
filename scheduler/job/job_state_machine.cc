#include "scheduler/job/job_state_machine.h"

#include "absl/strings/str_cat.h"

namespace pawl {

bool JobStateMachine::Start(MonotonicTime now) {
  if (state_ != STARTING) return false;
  state_ = RUNNING;
  started_ = now;
  return true;
}

bool JobStateMachine::Finish(MonotonicTime now) {
  if (state_ != RUNNING) return false;
  state_ = FINISHING;
  ended_ = now;
  return true;
}

bool JobStateMachine::Complete() {
  if (state_ != FINISHING) return false;
  state_ = COMPLETED;
  return true;
}

bool JobStateMachine::EndEarly(JobState state, const std::string& reason, MonotonicTime now) {
  if (ended()) return false;
  if (state_ == STARTING) started_ = now;
  if (state_ != FINISHING) ended_ = now;
  state_ = state;
  reason_ = reason;
  return true;
}

double JobStateMachine::TrainSeconds(MonotonicTime now) const {
  switch (state_) {
    case STARTING:
      return 0;
    case RUNNING:
      return Seconds(now - started_);
    default:
      return Seconds(ended_ - started_);
  }
}

void JobStateMachine::Restore(JobState state, const std::string& reason,
                              MonotonicDuration train_time, MonotonicTime now) {
  state_ = state;
  reason_ = reason;
  started_ = now - train_time;
  ended_ = now;
}

absl::Status JobStateMachine::CheckNotEnded() const {
  switch (state_) {
    case FAILED:
      return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", reason_));
    case STOPPED:
      return absl::UnavailableError(absl::StrCat("the job was stopped: ", reason_));
    case COMPLETED:
      return absl::UnavailableError("the job has completed");
    default:
      return absl::OkStatus();
  }
}

}  // namespace pawl
