// Waits until this scheduler leads its job.
#ifndef PAWL_SCHEDULER_STORE_LEADERSHIP_H_
#define PAWL_SCHEDULER_STORE_LEADERSHIP_H_

#include <chrono>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// How often a standby checks whether it must end, and retries an unreachable store.
inline constexpr std::chrono::seconds kCampaignInterval{1};

enum class Leadership {
  kImmediate,
  // Another scheduler led the job before.
  kAfterPredecessor,
  // This process was told to end before it led.
  kStopped,
};

// Waits until this process leads, or until `must_end(pause)`, which waits for the pause, returns
// true. Meanwhile calls `check` with the leader's newest state until it returns true, which means
// that it has checked one. An error of `check`, or a permanent error of the store, ends the wait.
absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, absl::FunctionRef<bool(MonotonicDuration pause)> must_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_LEADERSHIP_H_
