// The stages and the result of a job's end.
#ifndef PAWL_SCHEDULER_JOB_JOB_END_H_
#define PAWL_SCHEDULER_JOB_JOB_END_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler_state.pb.h"
#include "proto/server_control.pb.h"
#include "proto/types.pb.h"

namespace pawl {

// Decides the stages that a job goes through once all its work is done. The Coordinator does the
// work of each stage and calls Advance. Not thread-safe.
//
// Invariants:
//  1. The stages are not saved. A restarted scheduler starts with the first one again: all calls to
//     servers are idempotent.
//  2. While the report is being written, nothing but its writing can fail the job.
class JobEnd {
 public:
  enum class Stage {
    // The job is still being trained.
    kNone,
    // Skipped unless the servers keep the parameters of the best evaluation.
    kRestoringBest,
    // Skipped unless a final checkpoint is wanted and not decided yet.
    // Before the digest: if that fails, the model still exists in the checkpoint. Both cover the
    // same parameters unless a client still pushes. A push that arrives now may be in some parts of
    // the checkpoint and not in others (a server takes its partitions one after the other), and is
    // then in the digest.
    kCheckpointing,
    kInspecting,
    // The result is known, or the job has failed or was stopped, and the report is being written.
    kReporting,
    kReported,
  };
  // The training, or the work of the present stage, is done. Returns the next stage.
  Stage Advance();
  // The job has reached a final state. `must_report`: a report without a result must be written.
  void Finish(bool must_report) { stage_ = must_report ? Stage::kReporting : Stage::kReported; }

  Stage stage() const { return stage_; }
  bool reported() const { return stage_ == Stage::kReported; }
  // Whether the job can still fail or be stopped.
  bool CanFail() const { return stage_ != Stage::kReporting; }

  // Computes the result from the answer of each server; `table_names` by id. INTERNAL: the answers
  // contradict each other.
  absl::Status SetResult(const std::map<uint32_t, std::string>& table_names,
                         const std::vector<InspectResponse>& answers);
  // Set by SetResult.
  const std::optional<uint32_t>& digest() const { return digest_; }
  const std::optional<ServerCounters>& counters() const { return counters_; }

  // The result, in its fields of the state.
  void Save(SchedulerState& stored) const;
  void Restore(const SchedulerState& stored);

 private:
  Stage stage_ = Stage::kNone;
  std::optional<uint32_t> digest_;
  std::optional<ServerCounters> counters_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_JOB_END_H_
