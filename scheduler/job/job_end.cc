#include "scheduler/job/job_end.h"

#include "client_lib/base/status_macros.h"
#include "scheduler/status/digest.h"
#include "scheduler/status/server_counters.h"

namespace pawl {

JobEnd::Stage JobEnd::Advance() {
  if (stage_ != Stage::kReported) stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  return stage_;
}

absl::Status JobEnd::SetResult(const std::map<uint32_t, std::string>& table_names,
                               const std::vector<InspectResponse>& answers) {
  ServerCounters counters;
  std::vector<PartitionDigest> digests;
  for (const InspectResponse& answer : answers) {
    AddCounters(answer.counters(), counters);
    digests.insert(digests.end(), answer.digests().begin(), answer.digests().end());
  }
  PAWL_ASSIGN_OR_RETURN(digest_, CombineDigests(table_names, digests));
  counters_ = counters;
  return absl::OkStatus();
}

void JobEnd::Save(SchedulerState& stored) const {
  if (digest_.has_value()) stored.set_digest(*digest_);
  if (counters_.has_value()) *stored.mutable_final_counters() = *counters_;
}

void JobEnd::Restore(const SchedulerState& stored) {
  if (stored.has_digest()) digest_ = stored.digest();
  if (stored.has_final_counters()) counters_ = stored.final_counters();
  if (stored.state() == COMPLETED) stage_ = Stage::kReported;
}

}  // namespace pawl
