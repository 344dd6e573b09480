// A job's data, as a worker sees it.
#ifndef PAWL_WORKER_PROCESS_JOB_DATA_H_
#define PAWL_WORKER_PROCESS_JOB_DATA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/stream/streamed_data.h"
#include "worker/data/training_data.h"

namespace pawl {

struct JobData {
  std::unique_ptr<TrainingData> train;
  // `train`, if the job streams it; otherwise null.
  const StreamedData* streamed = nullptr;
  // Null if the job has no data.eval.
  std::unique_ptr<TrainingData> eval;
  // `eval`, if it is in memory; otherwise null.
  const Dataset* eval_in_memory = nullptr;
};

struct JobDataOptions {
  // Memory of all data together.
  uint64_t max_bytes = 0;
  // Memory of the windows of a rank, for streamed data of each kind. 0: only max_bytes limits it.
  uint64_t max_rank_bytes = 0;
  // Where indexes of streamed data are. Empty: each beside its file.
  std::string index_dir = {};
};

// Opens the job's files: reads them, except for data that is streamed, which needs an index. With
// evaluation.only opens the evaluation data alone, which is also `train`. Returns the errors of
// Dataset::Load and StreamedData::Open, and INVALID_ARGUMENT, naming the field, for labels that the
// model's loss does not accept and for an evaluation.group_by that data.eval does not have.
absl::StatusOr<JobData> LoadJobData(const Job& job, const JobDataOptions& options);

// Makes the indexes of the job's streamed data where they are missing or outdated. Returns the
// identity of the training data. INVALID_ARGUMENT if the job does not stream its data.
absl::StatusOr<std::string> MakeDataIndex(const Job& job, const std::string& index_dir);

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_JOB_DATA_H_
