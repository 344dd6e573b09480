#include "worker/process/failure_policy.h"

namespace pawl {

bool HasStarted(const GetStatusResponse& job) {
  if (job.steps() > 0 || job.counters().step() > 0) return true;
  for (const NodeStatus& node : job.nodes()) {
    if (node.worker().steps_max() > 0) return true;
  }
  return false;
}

bool ShouldFailJob(const absl::Status& why, bool was_ready, bool job_has_started) {
  if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why)) return false;
  return was_ready || !job_has_started;
}

}  // namespace pawl
