// Waits until this scheduler leads its job.
#ifndef PAWL_SCHEDULER_STORE_LEADERSHIP_H_
#define PAWL_SCHEDULER_STORE_LEADERSHIP_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// How often a standby checks whether it must end, and retries a store that fails.
inline constexpr std::chrono::seconds kCampaignInterval{1};

enum class Leadership {
  kLeads,
  // This process was told to end before it led.
  kStopped,
};

// Waits for the pause; true: the process must end.
using PauseUnlessEnding = absl::FunctionRef<bool(MonotonicDuration pause)>;

// Waits until this process leads, or until `must_end` returns true. Meanwhile calls `check` with
// the leader's newest state until it returns true, which means that it has checked one. An error of
// `check`, or an error of the store that may not pass (IsTransient), ends the wait.
absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, PauseUnlessEnding must_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check);

// Loads the state, and repeats that after an error of the store that may pass. CANCELLED: the
// process must end. REQUIRES: this process leads.
absl::StatusOr<std::optional<StoredState>> LoadState(StateStore& store, PauseUnlessEnding must_end);
// The same for StateStore::Save.
absl::Status SaveState(StateStore& store, uint64_t revision, absl::string_view state,
                       PauseUnlessEnding must_end);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_LEADERSHIP_H_
