// When to make a checkpoint, and at which step.
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

// A cut is made where no partition has been yet, and what the scheduler knows of their steps is
// some hundred milliseconds old. So it is asked for a number of steps ahead; where that was not
// enough, twice as many the next time, up to this, and up to as many as are trained in
// kMaxCheckpointLeadTime: more is never a matter of knowing too late.
inline constexpr uint64_t kMaxCheckpointLead = uint64_t{1} << 20;
inline constexpr std::chrono::seconds kMaxCheckpointLeadTime{30};
// After so many in a row that were in time half as many steps ahead are tried: one in so many may
// then be too late.
inline constexpr uint32_t kCheckpointsBeforeLessLead = 8;
// Every so many steps: asked for when it is so near, or a second away.
inline constexpr uint64_t kCheckpointReach = 8;
// Folders in which somebody waits for one that is not begun yet.
inline constexpr size_t kMaxWantedFolders = 64;

// The decisions and the account of checkpoints; the asking and writing is others' work. One at a
// time. Time and progress are passed in. Not thread-safe.
class Checkpoints {
 public:
  // The policy of the job, with its defaults filled in. `step_multiple`, above 0: only its
  // multiples, and the last step, are cut at (dense_path: ALLREDUCE: where the workers write the
  // dense parameters to the servers). `end_is_as_trained`: the job's end has the parameters of its
  // last step, so that nobody needs another checkpoint of that step in the job's folder.
  Checkpoints(const CheckpointPolicy& policy, MonotonicTime now, uint64_t step_multiple = 1,
              bool end_is_as_trained = true)
      : policy_(policy),
        step_multiple_(step_multiple),
        end_is_as_trained_(end_is_as_trained),
        last_begun_(now) {}

  struct Order {
    uint64_t step = 0;
    std::string dir;
    // How many to keep in `dir`; 0: all.
    uint32_t keep = 0;
    // Somebody waits for it: if it comes too late, another one is made as soon as it can be.
    bool urgent = false;
    // Of the job's end.
    bool of_end = false;

    // For people.
    std::string Text() const;
  };

  // Where a request is to be kept: `dir`, or the job's own folder. INVALID_ARGUMENT,
  // FAILED_PRECONDITION.
  absl::StatusOr<std::string> DirOf(absl::string_view dir) const;
  // Somebody wants one in `dir`. RESOURCE_EXHAUSTED beyond kMaxWantedFolders. REQUIRES: it comes
  // from DirOf.
  absl::Status Request(const std::string& dir);
  // Nobody waits for one in `dir` any more: if it is not begun yet, it will not be for their sake.
  void Withdraw(const std::string& dir);

  // The one that is to be begun now, which is under way from then on. `step`: the highest that any
  // partition is known to have reached; `last_step`: where the training ends, 0: not known.
  std::optional<Order> Next(MonotonicTime now, uint64_t step, uint64_t last_step);
  const std::optional<Order>& under_way() const { return under_way_; }
  // Whether it is the one under way: no other has taken its place.
  bool IsUnderWay(const Order& order) const;

  // What became of the one under way. TooLate: some partition had reached the step; it is tried
  // again further ahead. Moved: partitions changed hands, which says nothing of the lead; it is
  // tried again.
  void TooLate();
  void Moved();
  void Failed(const absl::Status& why);
  // Also of one whose place the end's has taken.
  void Completed(const Order& order, const std::string& folder, uint64_t unix_ms);

  // The training is over, after so many steps: the end's checkpoint takes the place of the one
  // under way. REQUIRES: the job has a folder for it, and the end is not decided.
  Order BeginEnd(uint64_t step);
  // The end has the checkpoint in `folder`, or can have none.
  void EndIsIn(const std::string& folder) { status_.set_end_folder(folder); }
  void EndHasFailed(const absl::Status& why);
  bool end_is_decided() const {
    return !status_.end_folder().empty() || !status_.end_failure().empty();
  }

  // The job goes on without it, and nobody waits for others.
  void Abandon();
  // The job was restored from a checkpoint of this step.
  void BeginAfter(uint64_t step) { last_asked_ = step; }

  // Of restored_* nothing.
  CheckpointStatus Status() const;
  void Restore(const CheckpointStatus& stored);

 private:
  void NoteProgress(MonotonicTime now, uint64_t step);
  // The lead that is never exceeded.
  uint64_t LongestLead() const;
  // The multiple of every_steps to cut at, if it is time to ask for it.
  std::optional<uint64_t> DueStep(uint64_t step) const;

  // The next step that may be cut at, `step` itself included.
  uint64_t RoundUp(uint64_t step) const;

  const CheckpointPolicy policy_;
  const uint64_t step_multiple_;
  const bool end_is_as_trained_;
  // Folders in which one is wanted, each once, in the order of asking.
  std::deque<std::string> wanted_;
  std::optional<Order> under_way_;
  // Steps are never asked for twice, nor backwards.
  uint64_t last_asked_ = 0;
  // Doubled by each one that came too late, halved after kCheckpointsBeforeLessLead in a row that
  // did not: a partition that moves between order and cut is also too late, and a job whose
  // partitions move often would else order its checkpoints ever further ahead.
  uint64_t lead_ = 1;
  // Checkpoints since the lead has changed.
  uint32_t in_time_ = 0;
  // Of every_seconds.
  MonotonicTime last_begun_;
  // Steps in a second, from the last whole second; not set before there was one.
  MonotonicTime second_began_;
  uint64_t second_step_ = 0;
  bool seen_ = false;
  std::optional<uint64_t> steps_per_s_;
  CheckpointStatus status_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINTS_H_
