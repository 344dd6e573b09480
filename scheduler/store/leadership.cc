#include "scheduler/store/leadership.h"

#include <string>

#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::minutes kWaitLogInterval{1};

// Whether the store may succeed later: it is away, full, overloaded, or the lease of a campaign has
// expired. Exiting instead would end the scheduler for good, because service managers do not repeat
// an exit for a wrong flag.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsInternal(status) || absl::IsNotFound(status);
}

// Logs each new message of a wait, and one about a failing store again each minute.
class WaitLog {
 public:
  void Add(const char* what, const absl::Status& status) {
    const MonotonicTime now = Clock::Real().Now();
    const bool has_failed = !absl::IsDeadlineExceeded(status);
    if (status.message() == last_ && !(has_failed && now >= again_at_)) return;
    last_ = std::string(status.message());
    again_at_ = now + kWaitLogInterval;
    spdlog::log(has_failed ? spdlog::level::warn : spdlog::level::info, "{}: {}", what, last_);
  }

 private:
  std::string last_;
  MonotonicTime again_at_;
};

}  // namespace

absl::StatusOr<Leadership> BecomeLeader(
    StateStore& store, PauseUnlessEnding must_end,
    absl::FunctionRef<absl::StatusOr<bool>(const std::optional<StoredState>&)> check) {
  bool checked = false;
  WaitLog log;
  while (true) {
    const absl::Status status = store.Campaign(Clock::Real().Now() + kCampaignInterval);
    if (status.ok()) return Leadership::kLeads;
    const bool has_leader = absl::IsDeadlineExceeded(status);
    if (!has_leader && !IsTransient(status)) return status;
    log.Add("standing by", status);
    if (has_leader && !checked) {
      // A state that cannot be read now may be readable later. A damaged one is reported by its
      // leader.
      if (const auto stored = store.Peek(); stored.ok()) {
        PAWL_ASSIGN_OR_RETURN(checked, check(*stored));
      }
    }
    // Campaign waits for another leader, but returns at once if the storage fails.
    if (must_end(has_leader ? MonotonicDuration::zero() : kCampaignInterval))
      return Leadership::kStopped;
  }
}

absl::StatusOr<std::optional<StoredState>> LoadState(StateStore& store,
                                                     PauseUnlessEnding must_end) {
  WaitLog log;
  while (true) {
    absl::StatusOr<std::optional<StoredState>> stored = store.Load();
    if (stored.ok() || !IsTransient(stored.status())) return stored;
    log.Add("the stored state cannot be read yet", stored.status());
    if (must_end(kCampaignInterval)) return absl::CancelledError("the process was told to end");
  }
}

absl::Status SaveState(StateStore& store, uint64_t revision, absl::string_view state,
                       PauseUnlessEnding must_end) {
  WaitLog log;
  while (true) {
    const absl::Status status = store.Save(revision, state);
    if (status.ok() || !IsTransient(status)) return status;
    log.Add("the state cannot be saved yet", status);
    if (must_end(kCampaignInterval)) return absl::CancelledError("the process was told to end");
  }
}

}  // namespace pawl
