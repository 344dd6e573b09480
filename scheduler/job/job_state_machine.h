// The state of a job.
#ifndef PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_
#define PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_

#include <string>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// STARTING -> RUNNING -> FINISHING -> COMPLETED; from the first three also -> FAILED and ->
// STOPPED. The last three are final, and the first reason stands. Not thread-safe.
class JobStateMachine {
 public:
  // Each returns whether the state has changed; false if the present state does not allow it.
  bool Start(MonotonicTime now);
  bool Finish(MonotonicTime now);
  bool Complete();
  // To FAILED or STOPPED.
  bool EndEarly(JobState state, const std::string& reason, MonotonicTime now);

  JobState state() const { return state_; }
  bool ended() const { return state_ == COMPLETED || state_ == FAILED || state_ == STOPPED; }
  // Why the job is FAILED or STOPPED.
  const std::string& reason() const { return reason_; }
  // The time from RUNNING to FINISHING, FAILED or STOPPED, or until now; 0 before RUNNING.
  double TrainSeconds(MonotonicTime now) const;

  // Continues in `state`, after `train_time` of training.
  void Restore(JobState state, const std::string& reason, MonotonicDuration train_time,
               MonotonicTime now);

  // OK until the job has ended. FAILED: FAILED_PRECONDITION with the reason. STOPPED and COMPLETED:
  // UNAVAILABLE.
  absl::Status CheckNotEnded() const;

 private:
  JobState state_ = STARTING;
  std::string reason_;
  MonotonicTime started_;
  MonotonicTime ended_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_
