// A worker process's part in a job, from joining to the job's end.
#ifndef PAWL_WORKER_PROCESS_WORKER_H_
#define PAWL_WORKER_PROCESS_WORKER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/job/straggler.h"
#include "client_lib/security/security_options.h"
#include "worker/collective/collective_kind.h"
#include "worker/collective/open_collectives.h"
#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/cuda/library.h"
#include "worker/process/interrupt.h"

namespace pawl {

struct WorkerOptions {
  // host:port of the scheduler.
  std::string scheduler;
  SecurityOptions security;
  // A device name for OpenDevice.
  std::string device = "cpu";
  CudaMath cuda_math = CudaMath::kFloat32;
  // For devices on the CPU.
  GemmKernel matmul_kernel = SupportedGemmKernels().back();
  // See TrainingModel::Create.
  bool records_steps = false;
  // The transport of dense gradients in a job with dense_path: ALLREDUCE. kNccl without its
  // prerequisites is an error for any job.
  CollectivesChoice collectives = CollectivesChoice::kAuto;
  // For tests: offered to the other workers in place of the collectives that `collectives` selects.
  std::vector<CollectiveKind> collective_kinds;
  // The IP address or name at which other workers reach this one for collectives. Empty: this
  // machine's address on the route to the scheduler.
  std::string collective_host;
  // Allows collectives between machines with TLS, which protects everything but them.
  bool insecure_collectives = false;
  // Where the worker keeps its identity across restarts. Empty: it does not.
  std::string data_dir;
  // Memory limit of the job's data; a job that needs more is refused. 0: MemoryLimitBytes().
  uint64_t max_data_bytes = 0;
  // See JobDataOptions.
  uint64_t max_rank_data_bytes = 0;
  std::string index_dir;
  // How long to try to reach the scheduler, and to wait for the job's servers.
  MonotonicDuration connect_timeout = std::chrono::minutes(5);
  // How long to wait for the first assignment of ranks, if the scheduler does not wait longer for
  // the job's first workers.
  MonotonicDuration assignment_timeout = std::chrono::minutes(10);
  // See RankShared.
  MonotonicDuration step_delay = MonotonicDuration::zero();
  Straggler straggler;
  // A delay for each element of a dense table in each step: once before the forward pass reads the
  // table, twice before its gradient is handed in. Needs dense_path: ALLREDUCE without
  // micro-batches.
  MonotonicDuration element_delay = MonotonicDuration::zero();
  // Called when everything is loaded and training starts. May be null.
  std::function<void()> on_training;
};

enum class WorkerEnd {
  kCompleted,
  // The job was stopped, or completed without this worker.
  kStopped,
  // The job has failed, or this worker is no longer a member of it.
  kFailed,
  // This worker cannot do its part: the job, its data or the device is at fault. That fails the
  // job, unless others had trained in it before this worker started (failure_policy.h).
  kUnable,
  // The worker was asked to leave.
  kInterrupted,
};

struct WorkerOutcome {
  WorkerEnd end = WorkerEnd::kFailed;
  // The reason, if not kCompleted.
  absl::Status status = absl::OkStatus();
  // A thread that reads data was left behind, because the read may hang.
  bool is_reading = false;
};

// Joins the job as a worker and trains the ranks that the scheduler assigns, until the job ends.
// The assignment may change and may be empty. Each rank continues from the step that the servers
// report.
//
// After `leave` is set, the worker ends the steps that it has pushed a part of, and leaves the job;
// its ranks move to other workers. After `abandon` is set, it does not wait for those steps. The
// worker sets both itself when the scheduler or an error requires it.
//
// Unless the end is kCompleted and not is_reading, a thread that still reads data may be left
// behind, so the process should exit without destroying what that thread uses.
WorkerOutcome RunWorker(const WorkerOptions& options, Interrupt& leave, Interrupt& abandon);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_WORKER_H_
