// The critical sections of the Coordinator. Only for coordinator*.cc.
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

// Holds the lock during its lifetime. Its destructor calls EndSection; actions that need not wait
// for a save run after the lock is released.
class PAWL_THREAD_ANNOTATION(scoped_lockable) Coordinator::Section {
 public:
  explicit Section(Coordinator& coordinator)
      PAWL_ACQUIRE(coordinator.mu_) PAWL_NO_THREAD_SAFETY_ANALYSIS : coordinator_(coordinator),
                                                                     lock_(coordinator.mu_) {}
  ~Section() PAWL_RELEASE() PAWL_NO_THREAD_SAFETY_ANALYSIS { coordinator_.EndSection(actions_); }

  DeferredActions& actions() { return actions_; }

 private:
  Coordinator& coordinator_;
  // Before lock_: the actions run in its destructor, after the lock is released.
  DeferredActions actions_;
  const MutexLock lock_;
};

// The Section of one rpc, which must be answered or suspended exactly once. The constructor refuses
// the call if kMaxPendingCalls answers already wait for a save.
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
  // For actions that need not wait for a save.
  DeferredActions& at_once() { return at_once_; }
  // Answers with the other actions. Returns the ticket of a call that does not wait.
  Ticket Answer(absl::StatusOr<Response> answer) {
    actions().Add(
        [done = Take(), answer = std::move(answer)]() mutable { done(std::move(answer)); });
    return 0;
  }
  // For an answer that does not leave with the other actions.
  Done<Response> Take() {
    assert(done_ != nullptr);
    return std::exchange(done_, nullptr);
  }
  // Adds the call to one of pending_. REQUIRES: CheckCanWait is OK.
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
  // Run after the lock is released.
  DeferredActions at_once_;
  Section section_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_SECTION_H_
