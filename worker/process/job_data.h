// The data of a job, in a worker's memory.
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

// The memory of this machine.
uint64_t MachineMemoryBytes();

// Reads the job's files, which may take `max_bytes` of memory together. Errors as Dataset::Load;
// INVALID_ARGUMENT, naming the field, for labels that the model's loss cannot take.
absl::StatusOr<JobData> LoadJobData(const Job& job, uint64_t max_bytes);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_JOB_DATA_H_
