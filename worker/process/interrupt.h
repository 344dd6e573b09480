// How the threads of a worker are told to end, and how they wait so that they can be told.
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

// Somebody is to end. Thread-safe.
class Interrupt {
 public:
  // One that is set also while `parent`, which outlives it, is.
  explicit Interrupt(const Interrupt* parent = nullptr) : parent_(parent) {}

  // To end, for this reason; the first one stays. REQUIRES: !reason.ok().
  void Set(absl::Status reason);
  // OK until Set.
  absl::Status reason() const;
  // Waits for so long, or until Set; returns reason().
  absl::Status SleepFor(MonotonicDuration duration);

 private:
  const Interrupt* const parent_;

  mutable Mutex mu_;
  CondVar set_;
  absl::Status reason_ PAWL_GUARDED_BY(mu_);
};

// The two of a process, or of a rank, which has the process's as parents. Who sets them:
//
//   the process's leave     EndWatcher: the process is to leave, or the job is over; RankHost: a
//   rank has failed the process's abandon   main.cc, some time after a signal; EndWatcher: the job
//   is over; RankHost: a rank has failed a rank's leave          RankHost: the rank is another's;
//   the rank: a call of it has failed a rank's abandon        the rank: a call of it has failed
struct Interrupts {
  // Nothing is begun or waited for any more, but a step of which something was pushed is ended.
  Interrupt& leave;
  // That is not waited for either.
  Interrupt& abandon;
};

// A thread that waits for an answer looks so often whether it is to end.
inline constexpr std::chrono::milliseconds kInterruptInterval{50};
// The client library ends every call by its deadline, and a collective every operation; who waits
// for so much longer is right to say that the library itself is at fault.
inline constexpr std::chrono::seconds kLibraryGrace{30};

// Waits until `future` (std::future or std::shared_future) is ready: OK. The interrupt's reason if
// that is set first, DEADLINE_EXCEEDED, naming `what`, after `limit`.
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

// The same, and then the result. REQUIRES: future.valid(); it is not afterwards if it was ready.
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
