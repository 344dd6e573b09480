#include "client_lib/rpc/deadline_queue.h"

#include <algorithm>
#include <vector>

namespace pawl {
namespace {

// Entries may expire this late, so that one timer serves several.
constexpr std::chrono::milliseconds kGranularity{5};
// The longest timer, which bounds how long a timer keeps the queue alive.
constexpr std::chrono::seconds kMaxTimer{10};

}  // namespace

DeadlineQueue::Id DeadlineQueue::Add(MonotonicTime deadline, absl::AnyInvocable<void()> expire) {
  const MonotonicTime now = clock_.Now();
  MonotonicTime timer = std::min<MonotonicTime>(deadline + kGranularity, now + kMaxTimer);
  Id id;
  {
    MutexLock lock(mu_);
    id = Id(deadline, next_++);
    waiting_.emplace(id, std::move(expire));
    if (closed_ || armed_ <= timer) return id;
    armed_ = timer;
  }
  transport_.After(timer - now, [self = shared_from_this(), timer] { self->OnTimer(timer); });
  return id;
}

bool DeadlineQueue::Remove(const Id& id) {
  MutexLock lock(mu_);
  return waiting_.erase(id) > 0;
}

void DeadlineQueue::Close() {
  MutexLock lock(mu_);
  closed_ = true;
}

void DeadlineQueue::OnTimer(MonotonicTime armed) {
  const MonotonicTime now = clock_.Now();
  std::vector<absl::AnyInvocable<void()>> expired;
  MonotonicTime timer = MonotonicTime::max();
  {
    MutexLock lock(mu_);
    // A timer that was set after this one takes over.
    if (closed_ || armed_ != armed) return;
    while (!waiting_.empty() && waiting_.begin()->first.first <= now) {
      expired.push_back(std::move(waiting_.begin()->second));
      waiting_.erase(waiting_.begin());
    }
    if (!waiting_.empty()) {
      timer =
          std::min<MonotonicTime>(waiting_.begin()->first.first + kGranularity, now + kMaxTimer);
    }
    armed_ = timer;
  }
  if (timer != MonotonicTime::max()) {
    transport_.After(timer - now, [self = shared_from_this(), timer] { self->OnTimer(timer); });
  }
  for (absl::AnyInvocable<void()>& expire : expired) expire();
}

}  // namespace pawl
