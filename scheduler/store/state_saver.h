// Saves the scheduler's state on a thread of its own.
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

// A state to save, and the number of the change that produced it.
struct UnsavedState {
  uint64_t change = 0;
  SchedulerState state;
};

// The pause after a failed Save.
inline constexpr std::chrono::milliseconds kSaveRetryInterval{200};

// After a notification the saver takes the newest state and saves it; one Save covers all changes
// until then. After a failed Save and a pause it takes the newest state again, until a Save
// succeeds or another process leads. Thread-safe.
class StateSaver {
 public:
  struct Callbacks {
    // Returns the newest state, or nullopt if it is saved already.
    std::function<std::optional<UnsavedState>()> take;
    // The state with this change is saved.
    std::function<void(uint64_t change)> saved;
    // Another process leads, and nothing more can be saved. Runs once; the saver is idle from then
    // on.
    std::function<void(const absl::Status& why)> lost;
  };

  // `revision` is the stored one, or 0. Only the saver's thread calls `store`. REQUIRES: Campaign
  // and Load of `store` have succeeded, and `store` outlives the saver.
  StateSaver(StateStore& store, uint64_t revision, Callbacks callbacks);
  // Does not save pending changes; see WaitUntilSaved.
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  // Reports a change to save. Does not block and runs no callback.
  void Notify() PAWL_EXCLUDES(mu_);

  // Waits until all reported changes are saved. False: they are not by `deadline`.
  bool WaitUntilSaved(MonotonicTime deadline) PAWL_EXCLUDES(mu_);

  // How long the oldest unsaved change has waited for the store by now; 0 if there is none.
  MonotonicDuration UnsavedFor() const PAWL_EXCLUDES(mu_);

 private:
  void Run() PAWL_EXCLUDES(mu_);
  // Logs the first failure, then at most one a second.
  void LogFailure(const absl::Status& status, const SchedulerState& state);
  void LogSuccess();
  // Waits between two attempts. False: the saver must end.
  bool Pause() PAWL_EXCLUDES(mu_);

  StateStore& store_;
  const Callbacks callbacks_;
  // Used by the saver's thread only.
  uint64_t revision_;
  // Consecutive failures, and the time of the last log line about them.
  uint64_t failures_ = 0;
  MonotonicTime reported_;

  mutable Mutex mu_;
  CondVar wake_;
  CondVar idle_;
  bool stop_ PAWL_GUARDED_BY(mu_) = false;
  bool notified_ PAWL_GUARDED_BY(mu_) = false;
  // Set from the first attempt to save a change until it is saved.
  std::optional<MonotonicTime> busy_since_ PAWL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_SAVER_H_
