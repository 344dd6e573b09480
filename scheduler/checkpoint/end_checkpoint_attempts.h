// How often the checkpoint of a job's end is tried.
#ifndef PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_
#define PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"

namespace pawl {

// The job's end waits for its checkpoint so long, repeats included; then it ends without one, and
// says so.
inline constexpr std::chrono::seconds kEndCheckpointTimeout{1800};
// Before another attempt: where partitions moved or somebody was busy, and after an error, when all
// of it is written again.
inline constexpr std::chrono::seconds kEndCheckpointPause{1};
inline constexpr std::chrono::seconds kEndCheckpointErrorPause{10};

// Decides when the checkpoint of a job's end is tried again, and when the job ends without. Time is
// passed in. Not thread-safe.
class EndCheckpointAttempts {
 public:
  // Whether another attempt may go better: anything but what somebody has to set right first.
  // Errors of a disk may pass.
  static bool MayPass(const absl::Status& error);
  // A partition has moved, or the writer is still busy with the checkpoint before.
  static bool IsOfTheMoment(const absl::Status& error);

  // The first attempt begins.
  void Begin(MonotonicTime now) { until_ = now + kEndCheckpointTimeout; }
  // An attempt has come to nothing, and there is to be another one. Returns whether its error is
  // another one than that of the attempt before. REQUIRES: MayPass(error).
  bool HasFailed(const absl::Status& error, MonotonicTime now);

  // DEADLINE_EXCEEDED once there has been time enough, with the error of the last attempt.
  absl::Status CheckTime(MonotonicTime now) const;
  // Whether another attempt is to begin now; it has begun then.
  bool TakeNext(MonotonicTime now);

 private:
  MonotonicTime until_;
  // Unset while an attempt is under way.
  std::optional<MonotonicTime> again_at_;
  absl::Status last_error_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_END_CHECKPOINT_ATTEMPTS_H_
