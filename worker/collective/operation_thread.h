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

// Operations of one member that wait for their turn. Who calls more has lost control of what it
// does: the group is broken.
inline constexpr size_t kMaxQueuedOperations = 4096;
// A timeout that is longer is taken for this one.
inline constexpr std::chrono::hours kMaxOperationTimeout{24 * 365};

// Runs operations one after the other, in the order in which they were added, until one fails or
// somebody aborts; from then on each ends with that error without being run. Thread-safe.
//
// Invariants:
//  1. Every `done` runs exactly once, in order, on this thread; beyond kMaxQueuedOperations on that
//  of the caller.
//  2. The first error stays.
//  3. `interrupt` runs exactly once: when there is an error, or at the end.
class OperationThread {
 public:
  // Ends what it has to do at `deadline` with DEADLINE_EXCEEDED; soon after `interrupt` with
  // whatever error.
  using Operation = absl::AnyInvocable<absl::Status(MonotonicTime deadline)>;

  // `begin` runs first on the thread. `interrupt` makes the operation that runs, if one does, end
  // soon, and every later one fail; it may run on any thread, and must not block.
  OperationThread(std::function<void()> begin, std::function<void()> interrupt);
  // Stops.
  ~OperationThread();
  OperationThread(const OperationThread&) = delete;
  OperationThread& operator=(const OperationThread&) = delete;

  // Its deadline is `timeout` after its start.
  void Add(MonotonicDuration timeout, Operation operation, Collective::Done done)
      PAWL_EXCLUDES(mu_);

  // The same as an operation that fails, whatever runs. The first error counts. REQUIRES:
  // !reason.ok().
  void Abort(const absl::Status& reason) PAWL_EXCLUDES(mu_);

  // The first error; OK while there is none.
  absl::Status status() const PAWL_EXCLUDES(mu_);

  // Aborts, and waits until every `done` has been called, also of operations that those add. Not
  // from a `done`; nobody else adds any meanwhile.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  struct Entry {
    MonotonicDuration timeout;
    Operation operation;
    Collective::Done done;
  };

  void Run();
  absl::Status RunOne(Entry& entry) PAWL_EXCLUDES(mu_);
  // What there was before if there was an error; else `status`, which then stays. REQUIRES:
  // !status.ok().
  absl::Status Note(const absl::Status& status) PAWL_EXCLUDES(mu_);

  const std::function<void()> interrupt_;
  mutable Mutex mu_;
  CondVar changed_;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
  std::deque<Entry> queue_ PAWL_GUARDED_BY(mu_);
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  // The last to be made.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_OPERATION_THREAD_H_
