// The attempts at a job's final checkpoint.
#ifndef PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_
#define PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

// How long the job's end waits for its checkpoint, repeats included, before it ends without one.
// The time to write the model comes on top.
inline constexpr std::chrono::seconds kEndCheckpointTimeout{1800};
// The pause after an attempt that failed because a partition moved or the writer was busy.
inline constexpr std::chrono::seconds kEndCheckpointPause{1};
// The pause after any other error. Longer, because the next attempt writes everything again.
inline constexpr std::chrono::seconds kEndCheckpointErrorPause{10};

// Decides when the final checkpoint is attempted again and when the job ends without it. Time is
// passed in. Not thread-safe.
class EndCheckpointAttempts {
 public:
  // Whether another attempt may succeed without an operator's help. Disk errors may.
  static bool IsRetryable(const absl::Status& error);
  // A partition has moved, or the writer is still busy with the previous checkpoint.
  static bool IsTransient(const absl::Status& error);

  void Begin(MonotonicDuration timeout, MonotonicTime now) {
    timeout_ = timeout;
    until_ = now + timeout;
  }
  // No attempt could succeed during the last `time`.
  void Postpone(MonotonicDuration time) { until_ += time; }
  // An attempt has failed and another will follow. Returns whether the error differs from that of
  // the attempt before. REQUIRES: IsRetryable(error).
  bool OnFailed(const absl::Status& error, MonotonicTime now);

  // DEADLINE_EXCEEDED after the timeout, with the error of the last attempt.
  absl::Status CheckTime(MonotonicTime now) const;
  // Whether the next attempt starts now; it counts as started then.
  bool StartNext(MonotonicTime now);

 private:
  MonotonicDuration timeout_{};
  MonotonicTime until_;
  // Unset while an attempt is in progress.
  std::optional<MonotonicTime> again_at_;
  absl::Status last_error_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_
