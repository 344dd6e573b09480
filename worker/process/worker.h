// The worker process's part in a job, from joining to the job's end.
#ifndef PAWL_WORKER_PROCESS_WORKER_H_
#define PAWL_WORKER_PROCESS_WORKER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "worker/collective/collective_kind.h"
#include "worker/collective/open_collectives.h"
#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/cuda_math.h"
#include "worker/process/interrupt.h"

namespace pawl {

struct WorkerOptions {
  // The scheduler's host:port.
  std::string scheduler;
  // A name for OpenDevice.
  std::string device = "cpu";
  CudaMath cuda_math = CudaMath::kFloat32;
  GemmKernel matmul_kernel = SupportedGemmKernels().back();
  // See TrainingModel::Create.
  bool records_steps = false;
  // How the dense parts of a job with dense_path: ALLREDUCE travel. kNccl without what it needs is
  // an error for any job.
  CollectivesChoice collectives = CollectivesChoice::kAuto;
  // For tests: offered to the others' collectives in place of what `collectives` says.
  std::vector<CollectiveKind> collective_kinds;
  // At which other workers reach this one for collectives, an IP address or a name; empty: that of
  // the way to the scheduler.
  std::string collective_host;
  // Where it keeps who it is, so that it is the same worker when it is started again; empty:
  // nowhere.
  std::string data_dir;
  // Of memory for the job's data; a job that needs more is refused. 0: what the machine has.
  uint64_t max_data_bytes = 0;
  // How long to try to reach the scheduler, and to wait for the job's servers.
  MonotonicDuration connect_timeout = std::chrono::minutes(5);
  // How long to wait for the job's first workers before the ranks are given out, if that is longer
  // than the scheduler waits.
  MonotonicDuration assignment_timeout = std::chrono::minutes(10);
  // See RankShared.
  MonotonicDuration step_delay = MonotonicDuration::zero();
  // In each step, for each element of a dense table: so long before the forward pass reads it, and
  // twice as long before its gradient is handed in. With dense_path: ALLREDUCE and without
  // micro-batches.
  MonotonicDuration element_delay = MonotonicDuration::zero();
  // Called when everything is loaded and the training begins. May be null.
  std::function<void()> on_training;
};

enum class WorkerEnd {
  kCompleted,
  // Somebody stopped the job, or it has completed without this worker.
  kStopped,
  // The job has failed, or this worker is no longer a member of it.
  kFailed,
  // This worker cannot do its part: the job, its data or the device is at fault. The job fails by
  // that, unless others have trained in it before this one has begun (last_words.h).
  kUnable,
  // It was to leave.
  kInterrupted,
};

struct WorkerOutcome {
  WorkerEnd end = WorkerEnd::kFailed;
  // Why, if not kCompleted.
  absl::Status status = absl::OkStatus();
};

// Joins the job as a worker and trains the ranks that the scheduler assigns, which may be others in
// the course of the job or none at all, each from where the servers say that its last host had
// come, until the job's end. After `leave` is set, as it does itself when the scheduler says so, it
// ends the steps of which it has pushed something and leaves the job, whose ranks then go to
// others; after `abandon`, which it may set itself too, it does not wait for those steps. Unless
// the end is kCompleted, a thread that still reads data may be left behind, so the process should
// end too.
WorkerOutcome RunWorker(const WorkerOptions& options, Interrupt& leave, Interrupt& abandon);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_WORKER_H_
