#include "worker/interrupt.h"

#include <utility>

namespace pawl {

void Interrupt::Set(absl::Status reason) {
  MutexLock lock(mu_);
  if (!reason_.ok()) return;
  reason_ = std::move(reason);
  set_.NotifyAll();
}

absl::Status Interrupt::reason() const {
  MutexLock lock(mu_);
  return reason_;
}

absl::Status Interrupt::SleepFor(MonotonicDuration duration) {
  const MonotonicTime deadline = Clock::Real().Now() + duration;
  MutexLock lock(mu_);
  while (reason_.ok() && set_.WaitUntil(mu_, deadline)) {
  }
  return reason_;
}

}  // namespace pawl
