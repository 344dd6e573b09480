// Decides when to make a checkpoint, and at which step.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINTS_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINTS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A checkpoint must be at a step that no partition has reached, and the scheduler learns the steps
// of partitions some hundred milliseconds late. So it requests a checkpoint a number of steps ahead
// (the lead). A late request doubles the lead, up to this limit and to the steps trained in
// kMaxCheckpointLeadTime: a checkpoint that is late beyond that has another cause.
inline constexpr uint64_t kMaxCheckpointLead = uint64_t{1} << 20;
inline constexpr std::chrono::seconds kMaxCheckpointLeadTime{30};
// The lead is halved after this many timely checkpoints in a row: at most about one in this many is
// then late.
inline constexpr uint32_t kCheckpointsBeforeLessLead = 8;
// A checkpoint of the every_steps policy is requested this many steps, or a second, before it is
// due.
inline constexpr uint64_t kCheckpointReach = 8;
// A periodic checkpoint that was late or met a move is not repeated earlier: while partitions move,
// servers would write parts again and again.
inline constexpr std::chrono::seconds kMissedCheckpointPause{10};
// The limit on folders with a requested checkpoint that has not started.
inline constexpr size_t kMaxWantedFolders = 64;

// Decides when and at which step a checkpoint is made, and records the outcomes. One checkpoint is
// in progress at a time. Time and progress are passed in. Not thread-safe.
class Checkpoints {
 public:
  // `policy` is the job's, with its defaults filled in. `step_multiple`, above 0: cuts are made
  // only at its multiples and at the last step (with dense_path: ALLREDUCE, where the workers write
  // the dense parameters to the servers). `end_is_as_trained`: the final checkpoint has the
  // parameters of the last step, so that the job's folder needs no other checkpoint of that step.
  Checkpoints(const CheckpointPolicy& policy, MonotonicTime now, uint64_t step_multiple = 1,
              bool end_is_as_trained = true)
      : policy_(policy),
        step_multiple_(step_multiple),
        end_is_as_trained_(end_is_as_trained),
        last_started_(now) {}

  struct Order {
    uint64_t step = 0;
    std::string dir;
    // How many to keep in `dir`; 0: all.
    uint32_t keep = 0;
    // A caller waits.
    bool urgent = false;
    // The one that every_steps or every_seconds demand.
    bool is_periodic = false;
    // The job's final checkpoint.
    bool is_final = false;

    // For humans.
    std::string Text() const;
  };

  // The folder of a request for `dir`: that, or the job's own folder if it is empty.
  // INVALID_ARGUMENT, FAILED_PRECONDITION.
  absl::StatusOr<std::string> DirOf(absl::string_view dir) const;
  // Requests a checkpoint in `dir`. RESOURCE_EXHAUSTED beyond kMaxWantedFolders. REQUIRES: `dir` is
  // from DirOf.
  absl::Status Request(const std::string& dir);
  // Takes a request for `dir` back, unless its checkpoint is in progress.
  void Withdraw(const std::string& dir);

  // The checkpoint to start now, which is in progress from then on. `step`: the highest that a
  // partition is known to have reached; `last_step`: where training ends, 0: unknown.
  std::optional<Order> Next(MonotonicTime now, uint64_t step, uint64_t last_step);
  const std::optional<Order>& in_progress() const { return in_progress_; }
  // Whether `order` is in progress, and was not replaced.
  bool IsInProgress(const Order& order) const;

  // The outcome of the checkpoint in progress. OnTooLate: some partition had reached the step; the
  // next attempt has a larger lead, and waits until progress is known. OnMoved: partitions moved,
  // which does not change the lead. The next attempt follows as soon as possible, or after
  // kMissedCheckpointPause if no caller waits for it.
  void OnTooLate(MonotonicTime now);
  void OnMoved(MonotonicTime now);
  void OnFailed(const absl::Status& why);
  // Also of a checkpoint that the final one has replaced.
  void OnCompleted(const Order& order, const std::string& folder, uint64_t unix_ms);

  // Training has ended after `step` steps: the final checkpoint replaces the one in progress.
  // REQUIRES: the job has a folder, and the end is not decided.
  Order BeginEnd(uint64_t step);
  // The final checkpoint is in `folder`.
  void SetEndFolder(const std::string& folder) { status_.set_end_folder(folder); }
  // The job ends without a final checkpoint.
  void OnEndFailed(const absl::Status& why);
  bool end_is_decided() const {
    return !status_.end_folder().empty() || !status_.end_failure().empty();
  }

  // Drops the checkpoint in progress and all requests.
  void Abandon();
  // The job was restored from a checkpoint of this step.
  void StartAfter(uint64_t step) { last_asked_ = step; }

  // Without restored_*.
  CheckpointStatus Status() const;
  void Restore(const CheckpointStatus& stored);

 private:
  void NoteProgress(MonotonicTime now, uint64_t step);
  // The upper limit of the lead.
  uint64_t LongestLead() const;
  // The step to cut at for a multiple of every_steps, if its request is due.
  std::optional<uint64_t> DueStep(uint64_t step) const;

  // The first step from `step` on at which a cut is allowed.
  uint64_t RoundUp(uint64_t step) const;

  const CheckpointPolicy policy_;
  const uint64_t step_multiple_;
  const bool end_is_as_trained_;
  // Requested folders, each once, in the order of the requests.
  std::deque<std::string> wanted_;
  std::optional<Order> in_progress_;
  // The job's own folder lacks a periodic checkpoint, which met a move or a restart of the
  // scheduler, or was too late.
  bool missed_ = false;
  MonotonicTime repeat_after_ = MonotonicTime::min();
  // Requested steps only grow.
  uint64_t last_asked_ = 0;
  // The highest step known at the last request.
  uint64_t known_step_ = 0;
  // That of the last request, if it was late: then the step was out of date, for example because
  // the scheduler had just restarted.
  std::optional<uint64_t> late_at_;
  // Doubled by each late checkpoint, halved after kCheckpointsBeforeLessLead timely ones in a row:
  // a partition that moves between request and cut is late too, and frequent moves would otherwise
  // raise the lead without end.
  uint64_t lead_ = 1;
  // Timely checkpoints since the lead changed.
  uint32_t in_time_ = 0;
  // For every_seconds.
  MonotonicTime last_started_;
  // The training rate in the last whole second; unset before the first.
  MonotonicTime second_start_;
  uint64_t second_step_ = 0;
  bool seen_ = false;
  std::optional<uint64_t> steps_per_s_;
  CheckpointStatus status_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINTS_H_
