// Actions that a critical section collects and that run after it.
#ifndef PAWL_SCHEDULER_RPC_DEFERRED_ACTIONS_H_
#define PAWL_SCHEDULER_RPC_DEFERRED_ACTIONS_H_

#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace pawl {

// Runs its actions, in order, when it is destroyed. Declare it before the lock:
//
//   DeferredActions actions;
//   MutexLock lock(mu_);
//   actions.Add([...] { done(answer); });   // runs after the lock is released
//
// Not thread-safe.
class DeferredActions {
 public:
  DeferredActions() = default;
  DeferredActions(const DeferredActions&) = delete;
  DeferredActions& operator=(const DeferredActions&) = delete;
  ~DeferredActions() {
    for (absl::AnyInvocable<void()>& action : actions_) action();
  }

  void Add(absl::AnyInvocable<void()> action) { actions_.push_back(std::move(action)); }

  // Takes the actions away; they do not run here.
  std::vector<absl::AnyInvocable<void()>> Take() { return std::exchange(actions_, {}); }

 private:
  std::vector<absl::AnyInvocable<void()>> actions_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_DEFERRED_ACTIONS_H_
