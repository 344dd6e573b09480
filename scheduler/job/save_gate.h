// Holds actions until the state that they depend on is saved.
#ifndef PAWL_SCHEDULER_JOB_SAVE_GATE_H_
#define PAWL_SCHEDULER_JOB_SAVE_GATE_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "scheduler/rpc/deferred_actions.h"

namespace pawl {

// Counts the changes of a state, and holds the actions decided while a change is unsaved, because
// they may depend on it. Not thread-safe.
class SaveGate {
 public:
  // The state has changed.
  void OnChange() { ++change_; }
  uint64_t change() const { return change_; }
  bool all_saved() const { return saved_ == change_; }
  bool IsSaved(uint64_t change) const { return change <= saved_; }
  // The number of held decisions.
  size_t held() const { return held_.size(); }

  // Holds the actions until the present state is saved. Does nothing after Open. REQUIRES:
  // !all_saved().
  void Hold(DeferredActions& actions) {
    if (open_) return;
    std::vector<absl::AnyInvocable<void()>> taken = actions.Take();
    if (!taken.empty()) held_.emplace_back(change_, std::move(taken));
  }

  // From now on nothing is held; `due` gets the held actions.
  void Open(DeferredActions& due) {
    open_ = true;
    while (!held_.empty()) ReleaseFirst(due);
  }

  // The state after change number `change` is saved; `due` gets the actions that waited for it, in
  // order.
  void OnSaved(uint64_t change, DeferredActions& due) {
    saved_ = change;
    while (!held_.empty() && held_.front().first <= saved_) ReleaseFirst(due);
  }

 private:
  void ReleaseFirst(DeferredActions& due) {
    for (absl::AnyInvocable<void()>& action : held_.front().second) due.Add(std::move(action));
    held_.pop_front();
  }

  bool open_ = false;
  uint64_t change_ = 0;
  uint64_t saved_ = 0;
  std::deque<std::pair<uint64_t, std::vector<absl::AnyInvocable<void()>>>> held_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_SAVE_GATE_H_
