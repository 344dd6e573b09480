// Replacements for damaged checkpoints in the job's folder.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "client_lib/base/clock.h"
#include "client_lib/rpc/retry.h"

namespace pawl {

// Pauses after a failed checkpoint: writing a whole model again is expensive.
inline constexpr std::chrono::seconds kFirstRepairPause{10};
inline constexpr std::chrono::seconds kMaxRepairPause{600};

// Checkpoint files that were found damaged since this process started.
struct CheckpointFileCounts {
  uint64_t damaged = 0;
  // Damaged files whose folder has a later checkpoint, completed since.
  uint64_t replaced = 0;
};

// Counts damaged and replaced files and decides when to request a replacement. A part cannot be
// made again for its old step, so a later checkpoint replaces a damaged one. Time is passed in. Not
// thread-safe.
class CheckpointRepairs {
 public:
  // A file of the checkpoint of `step` is damaged. Call once for each file.
  void OnDamaged(uint64_t step, bool is_final) {
    ++counts_.damaged;
    newest_ = std::max(newest_, {step, is_final});
  }

  // Whether a replacement is due. True until a checkpoint has completed or failed.
  bool IsDue(MonotonicTime now) const { return counts_.replaced < counts_.damaged && now >= next_; }

  // A checkpoint in the job's folder has failed, a replacement or not.
  void OnFailed(MonotonicTime now) {
    if (counts_.replaced < counts_.damaged) {
      next_ = now + GrowingPause(++failures_, kFirstRepairPause, kMaxRepairPause);
    }
  }
  // The checkpoint of `step` is complete in the job's folder. It replaces only earlier ones: it may
  // have been reported as damaged itself.
  void OnCompleted(uint64_t step, bool is_final) {
    failures_ = 0;
    next_ = MonotonicTime::min();
    if (newest_ < std::pair(step, is_final)) counts_.replaced = counts_.damaged;
  }

  const CheckpointFileCounts& counts() const { return counts_; }

 private:
  CheckpointFileCounts counts_;
  // The latest damaged checkpoint: its step, and whether it is the final one, which comes later
  // than a checkpoint of the same step.
  std::pair<uint64_t, bool> newest_;
  uint32_t failures_ = 0;
  MonotonicTime next_ = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_
