#include "scheduler/store/leadership.h"

#include <string>

#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, absl::FunctionRef<bool(MonotonicDuration pause)> must_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check) {
  bool standing_by = false;
  bool checked = false;
  while (true) {
    absl::Status status = store.Campaign(Clock::Real().Now() + kCampaignInterval);
    if (status.ok()) return standing_by ? Leadership::kAfterPredecessor : Leadership::kImmediate;
    if (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status)) return status;
    if (!standing_by) spdlog::info("standing by: {}", std::string(status.message()));
    standing_by = true;
    if (absl::IsDeadlineExceeded(status) && !checked) {
      // A state that cannot be read now may be readable later. A damaged one is reported by its
      // leader.
      if (const auto stored = store.Peek(); stored.ok()) {
        PAWL_ASSIGN_OR_RETURN(checked, check(*stored));
      }
    }
    // Campaign waits for another leader, but returns at once if the storage is unreachable.
    if (must_end(absl::IsUnavailable(status) ? kCampaignInterval : MonotonicDuration::zero()))
      return Leadership::kStopped;
  }
}

}  // namespace pawl
