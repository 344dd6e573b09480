// Waiting until this scheduler is the one that directs the job.
#ifndef PAWL_SCHEDULER_STORE_LEADERSHIP_H_
#define PAWL_SCHEDULER_STORE_LEADERSHIP_H_

#include <chrono>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// A standby looks this often whether it is to end, and tries so often to reach a storage that is
// away.
inline constexpr std::chrono::seconds kCampaignInterval{1};

enum class Leadership {
  kAtOnce,
  // Another scheduler directed the job before.
  kAfterAnother,
  // Asked to end before.
  kNever,
};

// Waits until `store` says that this process leads, or `is_to_end(pause)`, which waits for the
// pause, says so. `check` is called meanwhile with what the leader has stored last, until it has
// found a state to look at: then it says true. Its error, and any of the store's that waiting does
// not cure, ends the waiting.
absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, absl::FunctionRef<bool(MonotonicDuration pause)> is_to_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_LEADERSHIP_H_
