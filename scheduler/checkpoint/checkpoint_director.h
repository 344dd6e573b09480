// All decisions about a job's checkpoints: when one is made, when it is repeated, and what the job
// was restored from.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_DIRECTOR_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_DIRECTOR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/checkpoint/checkpoint_repairs.h"
#include "scheduler/checkpoint/checkpoints.h"
#include "scheduler/checkpoint/end_checkpoint_attempts.h"

namespace pawl {

// Decides which checkpoint to make and what follows from its outcome. The owner calls the
// servers, writes the manifest and answers the callers. Time and progress are passed in. Not
// thread-safe.
class CheckpointDirector {
 public:
  using Order = Checkpoints::Order;

  // `job` has its defaults filled in. `enabled`: the owner can write checkpoints.
  CheckpointDirector(const Job& job, bool enabled, MonotonicTime now);

  // The progress of the job.
  struct Progress {
    JobState state = STARTING;
    // The highest step that a partition is known to have reached, and the last one of the training;
    // 0: unknown.
    uint64_t step = 0;
    uint64_t last_step = 0;
    // Whether any worker trains. Without one there are no steps.
    bool has_training = false;
  };

  // A caller asks for a checkpoint in `dir`, or in the job's own folder. Returns the folder for
  // which the call waits. UNIMPLEMENTED, FAILED_PRECONDITION, INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<std::string> Request(absl::string_view dir, const Progress& progress);
  // The last caller that waited for `dir` no longer waits.
  void Withdraw(const std::string& dir) { checkpoints_.Withdraw(dir); }
  // A file of a checkpoint in the job's folder is damaged; another one is made.
  void OnDamaged(uint64_t step, bool is_final) { repairs_.OnDamaged(step, is_final); }

  // The checkpoint to make now, if any.
  std::optional<Order> Next(const Progress& progress, MonotonicTime now);

  // Whether the job's end makes a checkpoint that is not decided yet.
  bool WantsEnd() const;
  struct EndOrder {
    // nullopt: the job was restored from its own final checkpoint and needs no other.
    std::optional<Order> order;
    // The folder of the checkpoint in progress that the order replaces. It may still be completed.
    std::string replaced_dir;
  };
  // Training has ended after `step` steps. `timeout`: for the checkpoint, repeats included.
  // REQUIRES: WantsEnd().
  EndOrder BeginEnd(uint64_t step, MonotonicDuration timeout, MonotonicTime now);

  // The consequences of an attempt.
  struct Outcome {
    // The state to save has changed.
    bool changed = false;
    // The callers that wait for this folder get `answer`; empty: no caller does.
    std::string answered_dir;
    absl::StatusOr<CheckpointResponse> answer = CheckpointResponse();
    // The job's end has its checkpoint, or ends without one.
    bool end_decided = false;
  };
  struct EndProgress {
    // Make another attempt.
    std::optional<Order> order;
    Outcome outcome;
  };
  // The next step of the checkpoint of the job's end.
  EndProgress ContinueEnd(MonotonicTime now);
  // No attempt at it could succeed during the last `time`, which does not count.
  void PostponeEnd(MonotonicDuration time) { end_attempts_.Postpone(time); }
  Outcome OnCompleted(const Order& order, const std::string& folder, uint64_t unix_ms);
  Outcome OnFailed(const Order& order, const absl::Status& status, MonotonicTime now);

  // The job has ended: no further checkpoint is made.
  void Abandon() { checkpoints_.Abandon(); }

  // The new job starts from this checkpoint, which has tables up to `last_table`.
  void StartFrom(const StoredRestore& restore, uint32_t last_table);
  // The checkpoint from which the job was restored.
  const std::optional<StoredRestore>& restored_from() const { return restored_from_; }
  // The servers have not loaded the whole checkpoint yet: nothing else may use them.
  bool loading() const { return restored_from_.has_value() && !restored_from_->loaded(); }
  // REQUIRES: loading().
  void OnLoaded() { restored_from_->set_loaded(true); }

  CheckpointStatus Status() const;
  // For humans: the folder of the job's final checkpoint, or why there is none.
  std::string EndText() const;
  const CheckpointFileCounts& file_counts() const { return repairs_.counts(); }

  // Saves the fields of the state that belong to this class. Damaged files are not saved: the next
  // scheduler finds them itself.
  void Save(SchedulerState& stored) const;
  void Restore(const SchedulerState& stored);

 private:
  bool IsOwnDir(const std::string& dir) const { return dir == policy_.dir(); }
  Outcome OnEndFailed(const Order& order, const absl::Status& status, MonotonicTime now);
  Outcome GiveUpEnd(const Order& order, const absl::Status& status);

  const CheckpointPolicy policy_;
  const bool enabled_;
  const bool serve_only_;
  Checkpoints checkpoints_;
  CheckpointRepairs repairs_;
  EndCheckpointAttempts end_attempts_;
  std::optional<StoredRestore> restored_from_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_DIRECTOR_H_
