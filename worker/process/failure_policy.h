// What a worker that cannot go on means to its job.
#ifndef PAWL_WORKER_PROCESS_FAILURE_POLICY_H_
#define PAWL_WORKER_PROCESS_FAILURE_POLICY_H_

#include <cstddef>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// More of an error is not worth everybody's while.
inline constexpr size_t kMaxFailureReportBytes = 1024;

// Whether somebody has trained in the job.
bool HasBegun(const GetStatusResponse& job);

// Whether the job is to fail because this worker ends with `why`; else the worker leaves, and its
// ranks wait for another. `trained`: it had come to the first step of its ranks, and was not
// refused by those who train. `job_has_begun`: HasBegun, or nobody knows.
//
// UNAVAILABLE and DEADLINE_EXCEEDED say that somebody else was away for long: the scheduler's own
// limits decide on that. A worker that was bad from the start, in a job that goes well, is not
// worth the job.
bool FailsTheJob(const absl::Status& why, bool trained, bool job_has_begun);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_FAILURE_POLICY_H_
