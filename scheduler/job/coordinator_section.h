// How the Coordinator's functions take its lock, and let go what they have decided: for
// coordinator_*.cc alone.
#ifndef PAWL_SCHEDULER_JOB_COORDINATOR_SECTION_H_
#define PAWL_SCHEDULER_JOB_COORDINATOR_SECTION_H_

#include <cassert>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/pending_calls.h"

namespace pawl {

// Has the lock while it is there. At its end EndSection is called, and once the lock is released
// the actions run that may.
class PAWL_THREAD_ANNOTATION(scoped_lockable) Coordinator::Section {
 public:
  explicit Section(Coordinator& coordinator)
      PAWL_ACQUIRE(coordinator.mu_) PAWL_NO_THREAD_SAFETY_ANALYSIS : coordinator_(coordinator),
                                                                     lock_(coordinator.mu_) {}
  ~Section() PAWL_RELEASE() PAWL_NO_THREAD_SAFETY_ANALYSIS { coordinator_.EndSection(actions_); }

  DeferredActions& actions() { return actions_; }

 private:
  Coordinator& coordinator_;
  // Run after the lock is released: destroyed after it.
  DeferredActions actions_;
  const MutexLock lock_;
};

// The Section in which an rpc is taken: the call is answered, or waits, once. One is refused, and
// answered by that, if the store has been failing for so long that no more answers can be held.
template <typename Response>
class PAWL_THREAD_ANNOTATION(scoped_lockable) Coordinator::Rpc {
 public:
  Rpc(Coordinator& coordinator, Done<Response> done)
      PAWL_ACQUIRE(coordinator.mu_) PAWL_NO_THREAD_SAFETY_ANALYSIS : coordinator_(coordinator),
                                                                     done_(std::move(done)),
                                                                     section_(coordinator) {
    if (coordinator.gate_.held() < kMaxPendingCalls) return;
    at_once_.Add([refused = Take()]() mutable {
      refused(absl::ResourceExhaustedError(absl::StrCat(
          kMaxPendingCalls, " answers wait until the scheduler's state is saved, the limit")));
    });
  }
  ~Rpc() PAWL_RELEASE() PAWL_NO_THREAD_SAFETY_ANALYSIS { assert(done_ == nullptr); }

  bool refused() const { return done_ == nullptr; }
  DeferredActions& actions() { return section_.actions(); }
  // What need not wait until anything is saved.
  DeferredActions& at_once() { return at_once_; }
  // With the other actions. Returns the ticket of a call that does not wait.
  Ticket Answer(absl::StatusOr<Response> answer) {
    actions().Add(
        [done = Take(), answer = std::move(answer)]() mutable { done(std::move(answer)); });
    return 0;
  }
  // For an answer that is not to wait with the other actions.
  Done<Response> Take() {
    assert(done_ != nullptr);
    return std::exchange(done_, nullptr);
  }
  // In one of pending_. REQUIRES: CheckCanWait has found that it can.
  template <typename Key>
  Ticket Suspend(PendingCalls<Key, Response>& calls,
                 std::type_identity_t<Key> key) PAWL_NO_THREAD_SAFETY_ANALYSIS {
    const Ticket ticket = coordinator_.pending_.NewTicket();
    calls.Suspend(ticket, std::move(key), Take());
    return ticket;
  }

 private:
  Coordinator& coordinator_;
  Done<Response> done_;
  // Run once the lock is released.
  DeferredActions at_once_;
  Section section_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_SECTION_H_
