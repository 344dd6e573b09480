// How moves go: what has been copied, how fast, and how long each change of a primary took.
#ifndef PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_
#define PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// The last pauses, of which quantiles are shown.
inline constexpr size_t kMaxPauses = 1024;

// Time is passed in. Not thread-safe.
class MoveProgress {
 public:
  void Copied(uint64_t bytes);
  void Paused(uint32_t pause_ms);
  // How many replicas are left to be copied now: the speed counts from when there were some.
  void Left(size_t replicas, MonotonicTime now);

  // Into what says what is left: what was, and how long it takes.
  void Fill(MonotonicTime now, MovesStatus& status) const;
  // Sums; pauses are forgotten.
  void Restore(const MovesStatus& stored);

 private:
  uint64_t replicas_ = 0;
  uint64_t bytes_ = 0;
  std::deque<uint32_t> pauses_;
  std::optional<MonotonicTime> busy_since_;
  uint64_t replicas_when_begun_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_MOVE_PROGRESS_H_
