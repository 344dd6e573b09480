// How the job stands.
#ifndef PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_
#define PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_

#include <string>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// STARTING -> RUNNING -> FINISHING -> COMPLETED; from the first three also -> FAILED and ->
// STOPPED. The last three are final: the first reason is the one that is told. Not thread-safe.
class JobStateMachine {
 public:
  // Each returns whether the state has changed: false where the step is not possible from here.
  bool Start(MonotonicTime now);
  bool Finish(MonotonicTime now);
  bool Complete();
  bool Fail(const std::string& failure, MonotonicTime now);
  bool Stop(const std::string& reason, MonotonicTime now);

  JobState state() const { return state_; }
  bool over() const { return state_ == COMPLETED || state_ == FAILED || state_ == STOPPED; }
  // Of FAILED and STOPPED: why.
  const std::string& reason() const { return reason_; }
  // From RUNNING to FINISHING, or to the failure or stop, or until now; 0 before.
  double TrainSeconds(MonotonicTime now) const;

  // Goes on in `state`, in which the training had taken `train_time`.
  void Restore(JobState state, const std::string& reason, MonotonicDuration train_time,
               MonotonicTime now);

  // OK while the job goes on. FAILED: FAILED_PRECONDITION with the reason. STOPPED and COMPLETED:
  // UNAVAILABLE.
  absl::Status CheckNotOver() const;

 private:
  bool End(JobState state, const std::string& reason, MonotonicTime now);

  JobState state_ = STARTING;
  std::string reason_;
  MonotonicTime started_;
  MonotonicTime ended_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_JOB_STATE_MACHINE_H_
