// Threads that help with work which others have begun.
#ifndef PAWL_SERVER_THREADS_HELPER_THREADS_H_
#define PAWL_SERVER_THREADS_HELPER_THREADS_H_

#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// Offers that no thread has taken up yet; those beyond it are lost.
inline constexpr size_t kMaxHelpWaiting = 256;

// Help may come at once, later or never, so nobody may wait for it: whoever has work offers a share
// of it and does all that nobody else takes up. Thread-safe.
class HelperThreads {
 public:
  // 0: there is no help.
  explicit HelperThreads(size_t threads);
  // Stop.
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  size_t size() const { return size_; }

  // `help` is run on one of the threads, or destroyed.
  void Offer(absl::AnyInvocable<void()> help) PAWL_EXCLUDES(mu_);

  // Waits for the help that is being given; there is no more from now on. To be called before what
  // it works on is destroyed. Idempotent, but not from two threads at once.
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

}  // namespace pawl

#endif  // PAWL_SERVER_THREADS_HELPER_THREADS_H_
