// Saves the scheduler's state, on a thread of its own.
#ifndef PAWL_SCHEDULER_STORE_STATE_SAVER_H_
#define PAWL_SCHEDULER_STORE_STATE_SAVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// A state to save, and the number of the change that made it.
struct UnsavedState {
  uint64_t change = 0;
  SchedulerState state;
};

// How long the saver waits after a failed Save before the next attempt.
inline constexpr std::chrono::milliseconds kSaveRetryInterval{200};

// Whenever it is notified it takes the newest state and saves it; all changes until then go out in
// one Save. After a Save that has failed, and a pause, it takes the newest state again, until one
// is saved or another process leads. Thread-safe.
class StateSaver {
 public:
  struct Callbacks {
    // The newest state, if it is not saved yet.
    std::function<std::optional<UnsavedState>()> take;
    // It is saved.
    std::function<void(uint64_t change)> saved;
    // Another process leads: nothing can be saved any more. Runs once; the saver rests from then
    // on.
    std::function<void(const absl::Status& why)> lost;
  };

  // Campaign and Load of `store` have succeeded; `revision` is the stored one, 0 if there is none.
  // The thread alone calls `store`, which outlives it.
  StateSaver(StateStore& store, uint64_t revision, Callbacks callbacks);
  // Does not save what is not saved yet; see WaitUntilSaved.
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  // There is something to save. Does not block and calls nobody back.
  void Notify() PAWL_EXCLUDES(mu_);

  // Whether all that was notified of is saved by then.
  bool WaitUntilSaved(MonotonicTime deadline) PAWL_EXCLUDES(mu_);

 private:
  void Run() PAWL_EXCLUDES(mu_);
  // One line for the first failure, then one a second.
  void NoteFailure(const absl::Status& status, const SchedulerState& state);
  void NoteSuccess();
  // Between two attempts; false: the saver ends.
  bool Pause() PAWL_EXCLUDES(mu_);

  StateStore& store_;
  const Callbacks callbacks_;
  // For the thread alone.
  uint64_t revision_;
  // In a row, and when one of them was reported.
  uint64_t failures_ = 0;
  MonotonicTime reported_;

  Mutex mu_;
  CondVar wake_;
  CondVar idle_;
  bool stop_ PAWL_GUARDED_BY(mu_) = false;
  bool notified_ PAWL_GUARDED_BY(mu_) = false;
  bool busy_ PAWL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_SAVER_H_
