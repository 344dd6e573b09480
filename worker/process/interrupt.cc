#include "worker/process/interrupt.h"

#include <algorithm>
#include <utility>

namespace pawl {

void Interrupt::Set(absl::Status reason) {
  MutexLock lock(mu_);
  if (!reason_.ok()) return;
  reason_ = std::move(reason);
  set_.NotifyAll();
}

absl::Status Interrupt::reason() const {
  {
    MutexLock lock(mu_);
    if (!reason_.ok()) return reason_;
  }
  return parent_ == nullptr ? absl::OkStatus() : parent_->reason();
}

absl::Status Interrupt::SleepFor(MonotonicDuration duration) const {
  const MonotonicTime deadline = Clock::Real().Now() + duration;
  while (true) {
    if (absl::Status reason = this->reason(); !reason.ok()) return reason;
    const MonotonicTime now = Clock::Real().Now();
    if (now >= deadline) return absl::OkStatus();
    // Setting the parent does not wake this wait, so it polls.
    const MonotonicTime until =
        parent_ == nullptr ? deadline : std::min<MonotonicTime>(deadline, now + kInterruptInterval);
    MutexLock lock(mu_);
    if (reason_.ok()) set_.WaitUntil(mu_, until);
  }
}

}  // namespace pawl
