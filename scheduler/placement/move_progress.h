// The progress of moves: what was copied, how fast, and how long handovers paused their partitions.
#ifndef PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_
#define PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The latest pauses, from which quantiles are computed.
inline constexpr size_t kMaxPauses = 1024;

// Time is passed in. Not thread-safe.
class MoveProgress {
 public:
  void OnCopied(uint64_t bytes);
  void OnPaused(uint32_t pause_ms);
  // The number of replicas still to be copied. The speed counts from when it became positive.
  void SetRemaining(size_t replicas, MonotonicTime now);

  // Adds the counts and durations to `status`, which has the number of replicas left.
  void Fill(MonotonicTime now, MovesStatus& status) const;
  // Restores the sums, without the pauses.
  void Restore(const MovesStatus& stored);

 private:
  uint64_t replicas_ = 0;
  uint64_t bytes_ = 0;
  std::deque<uint32_t> pauses_;
  std::optional<MonotonicTime> busy_since_;
  uint64_t replicas_at_start_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_
