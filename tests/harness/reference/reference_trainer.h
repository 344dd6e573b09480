// Runs a SYNC job in one process and gives the exact bits that a cluster must compute.
#ifndef PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TRAINER_H_
#define PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tests/harness/reference/reference_table.h"

namespace pawl {

struct ReferenceResult {
  uint32_t digest = 0;
  uint64_t steps = 0;
  uint64_t samples = 0;
  // The steps whose gradients clip_global_norm scaled down.
  uint64_t clipped_steps = 0;
  // The mean loss over the samples of the first and of the last step.
  double first_loss = 0;
  double last_loss = 0;
  std::vector<ReferenceTable> tables;
};

// Trains `job` to its end. Samples and gradients come from worker/data and worker/model; tables,
// sums, updates, initial values and the digest are reimplemented in the harness. Evaluations are
// skipped because they change no parameters. UNIMPLEMENTED for early stopping, backup workers, and
// settings that ReferenceOptimizer does not implement. REQUIRES: the job is valid, with absolute
// paths and defaults filled in.
absl::StatusOr<ReferenceResult> TrainReference(const Job& job);
// The same for the text of a job file.
absl::StatusOr<ReferenceResult> TrainReference(const std::string& job_text);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_TRAINER_H_
