// The manifest of a checkpoint whose parts the servers have written.
#ifndef PAWL_SCHEDULER_CHECKPOINT_MANIFEST_BUILDER_H_
#define PAWL_SCHEDULER_CHECKPOINT_MANIFEST_BUILDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/checkpoint/checkpoints.h"
#include "scheduler/evaluation/evaluations.h"

namespace pawl {

// The evaluations that a job restored from `order` does not repeat, as known when the servers are
// asked for their parts.
StoredEvaluations EvaluationsBefore(const Checkpoints::Order& order,
                                    const Evaluations& evaluations);

// The job's part of the manifest, known when the parts are complete.
struct CheckpointContext {
  const Job& job;
  uint64_t job_id = 0;
  // At least as high as any incarnation that the parts contain.
  uint64_t last_incarnation = 0;
  StoredTables tables;
  const Evaluations& evaluations;
};

// The manifest, with the scheduler state from which a restored job continues. ABORTED unless
// `parts` has each partition of the job once: servers answer by the routing that they have adopted,
// which may be newer than that of the question.
absl::StatusOr<CheckpointManifest> BuildManifest(const Checkpoints::Order& order,
                                                 std::vector<CheckpointPart> parts,
                                                 const StoredEvaluations& evaluations_before,
                                                 const CheckpointContext& context);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_MANIFEST_BUILDER_H_
