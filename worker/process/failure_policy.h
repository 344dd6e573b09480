// Decides whether a worker's error fails its job, and whether a job has started.
#ifndef PAWL_WORKER_PROCESS_FAILURE_POLICY_H_
#define PAWL_WORKER_PROCESS_FAILURE_POLICY_H_

#include <cstddef>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A failure report carries at most this much of the error text.
inline constexpr size_t kMaxFailureReportBytes = 1024;

// Whether a worker has trained a step of the job.
bool HasStarted(const GetStatusResponse& job);

// Whether the job fails when this worker ends with `why`. Otherwise the worker leaves and its ranks
// wait for another worker. `was_ready`: this worker had the data and tables to host ranks, and the
// other members of its group did not refuse it. `job_has_started`: HasStarted, or true if unknown.
//
// UNAVAILABLE and DEADLINE_EXCEEDED mean that another process was away for long, or that this one
// cannot start a thread; the scheduler's own limits decide about that. A worker that fails before
// it can host ranks does not fail a job that others are training.
bool ShouldFailJob(const absl::Status& why, bool was_ready, bool job_has_started);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_FAILURE_POLICY_H_
