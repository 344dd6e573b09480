// Nothing is told before it is saved.
#ifndef PAWL_SCHEDULER_JOB_SAVE_GATE_H_
#define PAWL_SCHEDULER_JOB_SAVE_GATE_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "scheduler/rpc/deferred_actions.h"

namespace pawl {

// Counts changes of a state and holds back whatever was decided while some of them were not saved
// yet: it may depend on them. Not thread-safe.
class SaveGate {
 public:
  // The state has changed.
  void Changed() { ++change_; }
  uint64_t change() const { return change_; }
  bool all_saved() const { return saved_ == change_; }
  bool IsSaved(uint64_t change) const { return change <= saved_; }
  // Decisions that are held back.
  size_t held() const { return held_.size(); }

  // Keeps the actions until the present state is saved, or leaves them to the caller after Open.
  // REQUIRES: !all_saved().
  void Hold(DeferredActions& actions) {
    if (open_) return;
    std::vector<absl::AnyInvocable<void()>> taken = actions.Take();
    if (!taken.empty()) held_.emplace_back(change_, std::move(taken));
  }

  // From now on nothing is held back; `due` gets what was.
  void Open(DeferredActions& due) {
    open_ = true;
    while (!held_.empty()) GiveFirst(due);
  }

  // The state is saved as it was after change number `change`; `due` gets what may go out now, in
  // order.
  void Saved(uint64_t change, DeferredActions& due) {
    saved_ = change;
    while (!held_.empty() && held_.front().first <= saved_) GiveFirst(due);
  }

 private:
  void GiveFirst(DeferredActions& due) {
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
