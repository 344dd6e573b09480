// How the threads of a worker are told to end, and how they wait interruptibly.
#ifndef PAWL_WORKER_PROCESS_INTERRUPT_H_
#define PAWL_WORKER_PROCESS_INTERRUPT_H_

#include <algorithm>
#include <chrono>
#include <future>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// A request to end, with a reason. Thread-safe.
class Interrupt {
 public:
  // Is also set while `parent` is, which outlives it.
  explicit Interrupt(const Interrupt* parent = nullptr) : parent_(parent) {}

  // The first reason stays. REQUIRES: !reason.ok().
  void Set(absl::Status reason);
  // OK until Set.
  absl::Status reason() const;
  // Waits for `duration`, or until Set. Returns reason().
  absl::Status SleepFor(MonotonicDuration duration) const;

 private:
  const Interrupt* const parent_;

  mutable Mutex mu_;
  mutable CondVar set_;
  absl::Status reason_ PAWL_GUARDED_BY(mu_);
};

// The two interrupts of a process or of a rank. A rank's have the process's as parents. They are
// set by:
//
//   the process's leave     EndWatcher: the process must leave, or the job has ended
//                           RankHost: a rank has failed
//   the process's abandon   main.cc: some time after a signal
//                           EndWatcher: the job has ended
//                           RankHost: a rank has failed
//   a rank's leave          RankHost: the rank moves to another worker
//                           the rank: one of its calls has failed
//   a rank's abandon        the rank: one of its calls has failed
struct Interrupts {
  // Starts and awaits nothing more, but ends a step that it has pushed a part of.
  Interrupt& leave;
  // Does not wait for that step either.
  Interrupt& abandon;
};

// How often a waiting thread checks its interrupt.
inline constexpr std::chrono::milliseconds kInterruptInterval{50};
// The client library ends every call by its deadline, as a collective ends every operation. A wait
// that lasts this much longer means that the library itself is at fault.
inline constexpr std::chrono::seconds kLibraryGrace{30};

// Waits until `future` (std::future or std::shared_future) is ready. Returns the interrupt's reason
// if that is set first, and DEADLINE_EXCEEDED, naming `what`, after `limit`.
template <typename Future>
absl::Status AwaitReady(const Future& future, MonotonicDuration limit, const Interrupt& interrupt,
                        absl::string_view what) {
  const MonotonicTime deadline = Clock::Real().Now() + limit;
  while (true) {
    const MonotonicDuration left = deadline - Clock::Real().Now();
    const MonotonicDuration slice = std::min<MonotonicDuration>(left, kInterruptInterval);
    if (future.wait_for(slice) == std::future_status::ready) return absl::OkStatus();
    if (absl::Status reason = interrupt.reason(); !reason.ok()) return reason;
    if (left <= MonotonicDuration::zero()) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": no answer in ", Seconds(limit), " s"));
    }
  }
}

// Waits in the same way and returns the result. REQUIRES: future.valid(). If it was ready, it is no
// longer valid afterwards.
inline absl::Status Await(std::future<absl::Status>& future, MonotonicDuration limit,
                          const Interrupt& interrupt, absl::string_view what) {
  const absl::Status ready = AwaitReady(future, limit, interrupt, what);
  return ready.ok() ? future.get() : ready;
}
template <typename T>
absl::StatusOr<T> Await(std::future<absl::StatusOr<T>>& future, MonotonicDuration limit,
                        const Interrupt& interrupt, absl::string_view what) {
  absl::Status ready = AwaitReady(future, limit, interrupt, what);
  if (!ready.ok()) return ready;
  return future.get();
}

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_INTERRUPT_H_
