#include "scheduler/store/leadership.h"

#include <string>

#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, absl::FunctionRef<bool(MonotonicDuration pause)> is_to_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check) {
  bool told = false;
  bool checked = false;
  while (true) {
    absl::Status status = store.Campaign(Clock::Real().Now() + kCampaignInterval);
    if (status.ok()) return told ? Leadership::kAfterAnother : Leadership::kAtOnce;
    if (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status)) return status;
    if (!told) spdlog::info("standing by: {}", std::string(status.message()));
    told = true;
    if (absl::IsDeadlineExceeded(status) && !checked) {
      // One that cannot be read now may be a moment later; who leads then says what is wrong with
      // it.
      if (const auto stored = store.Peek(); stored.ok()) {
        PAWL_ASSIGN_OR_RETURN(checked, check(*stored));
      }
    }
    // The other has been waited for in Campaign; a storage that is away answers at once.
    if (is_to_end(absl::IsUnavailable(status) ? kCampaignInterval : MonotonicDuration::zero()))
      return Leadership::kNever;
  }
}

}  // namespace pawl
