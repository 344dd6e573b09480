// The thread on which a member's operations run.
#ifndef PAWL_WORKER_COLLECTIVE_OPERATION_THREAD_H_
#define PAWL_WORKER_COLLECTIVE_OPERATION_THREAD_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "worker/collective/collective.h"

namespace pawl {

// Limit of queued operations of one member. A caller that exceeds it has lost control, and the
// group is broken.
inline constexpr size_t kMaxQueuedOperations = 4096;
// Longer timeouts are reduced to this one.
inline constexpr std::chrono::hours kMaxOperationTimeout{24 * 365};

// Runs operations one after another, in the order in which they were added, until one fails or
// Abort is called. From then on each operation ends with that error without running. Thread-safe.
//
// Invariants:
//  1. Every `done` runs exactly once and in order on this thread, or, beyond kMaxQueuedOperations,
// on the caller's thread.
//  2. The first error stays.
//  3. `interrupt` runs exactly once: on the first error, or at the end.
class OperationThread {
 public:
  // Ends by `deadline` with DEADLINE_EXCEEDED, and soon after `interrupt` with any error.
  using Operation = absl::AnyInvocable<absl::Status(MonotonicTime deadline)>;

  // `begin` runs first on the thread. `interrupt` makes the current operation, if any, end soon,
  // and every later one fail. It may run on any thread and must not block.
  OperationThread(std::function<void()> begin, std::function<void()> interrupt);
  // Calls Stop.
  ~OperationThread();
  OperationThread(const OperationThread&) = delete;
  OperationThread& operator=(const OperationThread&) = delete;

  // The deadline is `timeout` after the operation's start.
  void Add(MonotonicDuration timeout, Operation operation, Collective::Done done)
      PAWL_EXCLUDES(mu_);

  // Has the effect of a failed operation, whatever runs. The first error stays. REQUIRES:
  // !reason.ok().
  void Abort(const absl::Status& reason) PAWL_EXCLUDES(mu_);

  // The first error, or OK.
  absl::Status status() const PAWL_EXCLUDES(mu_);

  // Aborts and waits until every `done` has been called, including those of operations that a
  // `done` adds. REQUIRES: not called from a `done`; no other thread adds operations.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  struct Entry {
    MonotonicDuration timeout;
    Operation operation;
    Collective::Done done;
  };

  void Run();
  absl::Status RunOne(Entry& entry) PAWL_EXCLUDES(mu_);
  // Returns the first error, which is `status` if there was none before. REQUIRES: !status.ok().
  absl::Status RecordFailure(const absl::Status& status) PAWL_EXCLUDES(mu_);

  const std::function<void()> interrupt_;
  mutable Mutex mu_;
  CondVar changed_;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
  std::deque<Entry> queue_ PAWL_GUARDED_BY(mu_);
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  // Initialized last.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_OPERATION_THREAD_H_
