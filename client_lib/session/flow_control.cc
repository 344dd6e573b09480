#include "client_lib/session/flow_control.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {

bool FlowControl::Acquire(uint64_t step, size_t bytes, MonotonicTime deadline, Run run) {
  if (bytes == 0) return true;
  size_t waiting;
  {
    MutexLock lock(mu_);
    const bool is_next = waiting_.empty() || waiting_.begin()->first.first > step;
    if (open_ || (is_next && Fits(step, bytes))) {
      Grant(step, bytes);
      return true;
    }
    waiting = waiting_.size();
    if (waiting < max_waiting_) {
      const uint64_t id = next_id_++;
      // Under the lock, so that the thread that takes the waiter finds the id.
      const DeadlineQueue::Id timer = deadlines_->Add(
          deadline, [self = shared_from_this(), step, id] { self->Expire(step, id); });
      waiting_.emplace(std::pair(step, id), Waiter{bytes, std::move(run), timer});
      return false;
    }
  }
  run(absl::ResourceExhaustedError(absl::StrCat(
      waiting, " calls are waiting, which is the limit; wait for some of them first")));
  return false;
}

void FlowControl::Release(uint64_t step, size_t bytes) {
  if (bytes == 0) return;
  {
    MutexLock lock(mu_);
    const auto it = in_flight_.find(step);
    it->second.bytes -= bytes;
    if (--it->second.requests == 0) in_flight_.erase(it);
    if (waiting_.empty()) return;
  }
  Drain();
}

void FlowControl::Open() {
  {
    MutexLock lock(mu_);
    open_ = true;
  }
  Drain();
}

size_t FlowControl::bytes_in_flight() const {
  MutexLock lock(mu_);
  size_t total = 0;
  for (const auto& [step, granted] : in_flight_) total += granted.bytes;
  return total;
}

bool FlowControl::Fits(uint64_t step, size_t bytes) const {
  Granted before;
  for (const auto& [other, granted] : in_flight_) {
    if (other > step) break;
    before.bytes += granted.bytes;
    before.requests += granted.requests;
  }
  return before.requests == 0 ||
         (before.bytes + bytes <= limit_ && before.requests < max_requests_);
}

void FlowControl::Grant(uint64_t step, size_t bytes) {
  Granted& granted = in_flight_[step];
  granted.bytes += bytes;
  ++granted.requests;
}

void FlowControl::Drain() {
  mu_.Lock();
  if (draining_) {
    mu_.Unlock();
    return;
  }
  draining_ = true;
  while (!waiting_.empty()) {
    const auto it = waiting_.begin();
    const uint64_t step = it->first.first;
    if (!open_ && !Fits(step, it->second.bytes)) break;
    Waiter waiter = std::move(it->second);
    waiting_.erase(it);
    Grant(step, waiter.bytes);
    mu_.Unlock();
    deadlines_->Remove(waiter.deadline);
    waiter.run(absl::OkStatus());
    mu_.Lock();
  }
  draining_ = false;
  mu_.Unlock();
}

void FlowControl::Expire(uint64_t step, uint64_t id) {
  Run run;
  {
    MutexLock lock(mu_);
    const auto it = waiting_.find(std::pair(step, id));
    if (it == waiting_.end()) return;
    run = std::move(it->second.run);
    waiting_.erase(it);
  }
  run(absl::DeadlineExceededError("the call did not start before its deadline"));
  Drain();
}

}  // namespace pawl
