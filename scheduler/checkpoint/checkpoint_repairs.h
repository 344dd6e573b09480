// When to make another checkpoint because one in the job's folder is damaged.
#ifndef PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_
#define PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "client_lib/base/clock.h"
#include "client_lib/rpc/retry.h"

namespace pawl {

// After a checkpoint that could not be made: writing all of a model again costs much.
inline constexpr std::chrono::seconds kFirstRepairPause{10};
inline constexpr std::chrono::seconds kLongestRepairPause{600};

// Files of checkpoints that were found damaged since this process began.
struct CheckpointFileCounts {
  uint64_t damaged = 0;
  // Damaged files whose checkpoint has a later one in the same folder, completed since.
  uint64_t replaced = 0;
};

// A part cannot be made again for its old step, so a damaged checkpoint is replaced by a later one.
// Keeps the account of that and decides when to ask for one. Time is passed in. Not thread-safe.
class CheckpointRepairs {
 public:
  // A file of the checkpoint of that step is damaged. To be called once for each file.
  void OnDamaged(uint64_t step, bool of_end) {
    ++counts_.damaged;
    newest_ = std::max(newest_, {step, of_end});
  }

  // Whether a checkpoint is wanted now. It stays so until one has completed or failed.
  bool IsDue(MonotonicTime now) const { return counts_.replaced < counts_.damaged && now >= next_; }

  // A checkpoint in the job's folder has failed, whatever it was requested for.
  void OnFailed(MonotonicTime now) {
    if (counts_.replaced < counts_.damaged) {
      next_ = now + GrowingPause(++failures_, kFirstRepairPause, kLongestRepairPause);
    }
  }
  // The one of that step is complete in the job's folder. It replaces those before it only: it may
  // be damaged itself.
  void OnCompleted(uint64_t step, bool of_end) {
    failures_ = 0;
    next_ = MonotonicTime::min();
    if (newest_ < std::pair(step, of_end)) counts_.replaced = counts_.damaged;
  }

  const CheckpointFileCounts& counts() const { return counts_; }

 private:
  CheckpointFileCounts counts_;
  // The latest damaged one: the step, and whether it is that of the job's end, which comes after
  // it.
  std::pair<uint64_t, bool> newest_;
  uint32_t failures_ = 0;
  MonotonicTime next_ = MonotonicTime::min();
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_CHECKPOINT_REPAIRS_H_
