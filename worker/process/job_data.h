// A job's data in a worker's memory.
#ifndef PAWL_WORKER_PROCESS_JOB_DATA_H_
#define PAWL_WORKER_PROCESS_JOB_DATA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace pawl {

struct JobData {
  std::unique_ptr<Dataset> train;
  // Null if the job has no data.eval.
  std::unique_ptr<Dataset> eval;
};

// Physical memory of this machine.
uint64_t MachineMemoryBytes();

// Reads the job's files, which may take at most `max_bytes` of memory together. Returns the errors
// of Dataset::Load, and INVALID_ARGUMENT, naming the field, for labels that the model's loss does
// not accept.
absl::StatusOr<JobData> LoadJobData(const Job& job, uint64_t max_bytes);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_JOB_DATA_H_
