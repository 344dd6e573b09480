// Helper threads, and work on many partitions that a caller shares with them.
#ifndef PAWL_SERVER_THREADS_HELPER_THREADS_H_
#define PAWL_SERVER_THREADS_HELPER_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/mutex.h"
#include "server/replication/waiting_calls.h"

namespace pawl {

// The limit on offers that wait for a thread; further offers are dropped.
inline constexpr size_t kMaxPendingOffers = 256;
// With fewer partitions per thread, distributing the work costs more than it saves.
inline constexpr size_t kMinPartitionsPerThread = 8;

// A fixed set of threads. An offer may be taken up at once, later or never, so no caller may wait
// for it: the caller does all work that no helper takes. Thread-safe.
class HelperThreads {
 public:
  // 0: there are no helpers.
  explicit HelperThreads(size_t threads);
  // Calls Stop.
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  size_t size() const { return size_; }

  // Runs `help` on one of the threads, or destroys it.
  void Offer(absl::AnyInvocable<void()> help) PAWL_EXCLUDES(mu_);

  // Waits for the running offers and drops all others, also later ones. Call it before destroying
  // what the offers work on. Idempotent, but not for two threads at once.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  void Run() PAWL_EXCLUDES(mu_);

  const size_t size_;
  std::vector<std::thread> threads_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::deque<absl::AnyInvocable<void()>> waiting_ PAWL_GUARDED_BY(mu_);
};

// Runs work(0), ..., work(count - 1) once each, started in this order, on this thread and on the
// helpers (null: on this thread only), and then `done` on the thread that finishes last. The calls
// that a piece of work returns are resumed at once: a call that waits for one partition does not
// wait for the others. Returns when nothing is left to start; helpers may still be running their
// pieces, so `work` must not refer to the caller's stack. `work` and `done` are destroyed after
// `done` has run, even if an offer still waits for a thread.
//
// Partitions share nothing, and one thread works on each of them, so the results do not depend on
// the number of helpers. REQUIRES: the caller holds no locks.
void ShareWork(HelperThreads* helpers, size_t count,
               std::function<std::vector<std::shared_ptr<WaitingCall>>(size_t)> work,
               absl::AnyInvocable<void()> done);

}  // namespace pawl

#endif  // PAWL_SERVER_THREADS_HELPER_THREADS_H_
