// The worker process's part in a job, from joining to the job's end.
#ifndef PAWL_WORKER_WORKER_H_
#define PAWL_WORKER_WORKER_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "worker/interrupt.h"

namespace pawl {

// Each has two threads and its own gradients.
inline constexpr size_t kMaxHostedRanks = 256;

struct WorkerOptions {
  // The scheduler's host:port.
  std::string scheduler;
  // A name for OpenDevice.
  std::string device = "cpu";
  // How long to try to reach the scheduler, and to wait for the job's servers.
  MonotonicDuration connect_timeout = std::chrono::seconds(60);
  // How long to wait for the job's other workers before the ranks are given out.
  MonotonicDuration assignment_timeout = std::chrono::minutes(10);
  // See RankTrainer::Shared.
  MonotonicDuration step_delay = MonotonicDuration::zero();
};

enum class WorkerEnd {
  kCompleted,
  // Somebody stopped the job.
  kStopped,
  // The job has failed, or this worker is no longer a member of it.
  kFailed,
  // This worker cannot do its part: the job, its data or the device is at fault. The job fails by that.
  kUnable,
  // By the interrupt.
  kInterrupted,
};

struct WorkerOutcome {
  WorkerEnd end = WorkerEnd::kFailed;
  // Why, if not kCompleted.
  absl::Status status = absl::OkStatus();
};

// Joins the job as a worker, trains the ranks that the scheduler assigns, waits for the job's end. Ends
// soon after `interrupt` is set, leaving the job. Unless the end is kCompleted, a thread that
// still reads data may be left behind, so the process should end too.
WorkerOutcome RunWorker(const WorkerOptions& options, Interrupt& interrupt);

}  // namespace pawl

#endif  // PAWL_WORKER_WORKER_H_
