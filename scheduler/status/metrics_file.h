// metrics.json, the report on an ended job.
#ifndef PAWL_SCHEDULER_STATUS_METRICS_FILE_H_
#define PAWL_SCHEDULER_STATUS_METRICS_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/scheduler.pb.h"

namespace pawl {

// The result of a job.
struct JobReport {
  GetStatusResponse status;
  uint32_t servers = 0;
  uint32_t workers = 0;
  // The evaluation of the final parameters: the best if early stopping restored it, else the last.
  std::optional<EvaluationResult> evaluation;
};

// A JSON object with the keys job, mode, state, servers, workers, logical_workers, steps, samples,
// wall_s, samples_per_s, eval (EvaluationJson, or an empty object), evaluations (a list of the
// same), digest (8 hexadecimal digits; null unless the job completed), pushes_applied,
// pushes_deduplicated, pushes_late, staleness_max, rows, parameter_bytes, loss, end_checkpoint (the
// folder of the final checkpoint) or end_checkpoint_failure if the job has a checkpoint folder, and
// failure if the job failed.
std::string MetricsJson(const JobReport& report);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_METRICS_FILE_H_
