// A thread for work that may block, such as writing to the disk.
#ifndef PAWL_SERVER_THREADS_WORK_THREAD_H_
#define PAWL_SERVER_THREADS_WORK_THREAD_H_

#include <deque>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// Runs work in the order in which it was added, without locks. Thread-safe. The queue has no limit
// of its own: its users bound what they add.
class WorkThread {
 public:
  WorkThread() : thread_([this] { Run(); }) {}
  // Calls Stop.
  ~WorkThread() { Stop(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // Runs `work` once: on the thread, or, after Stop, at once on the caller's.
  void Add(absl::AnyInvocable<void()> work) PAWL_EXCLUDES(mu_);
  // Returns when everything that was added has run. Idempotent, but not for two threads at once.
  void Stop() PAWL_EXCLUDES(mu_);

 private:
  void Run() PAWL_EXCLUDES(mu_);

  Mutex mu_;
  CondVar wake_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::deque<absl::AnyInvocable<void()>> queue_ PAWL_GUARDED_BY(mu_);
  // The last member: it uses the others.
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_THREADS_WORK_THREAD_H_
