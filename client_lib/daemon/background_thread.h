// A thread that works until it is told to stop, and may hang in file I/O.
#ifndef PAWL_CLIENT_LIB_DAEMON_BACKGROUND_THREAD_H_
#define PAWL_CLIENT_LIB_DAEMON_BACKGROUND_THREAD_H_

#include <functional>
#include <thread>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// Thread-safe.
class BackgroundThread {
 public:
  BackgroundThread() = default;
  // Waits for the end of `run` without a deadline: see Stop.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // Calls `run` on the thread. It must return soon once IsStopping. Call once.
  void Start(std::function<void()> run);
  // Returns whether `run` has returned by `deadline`. If not, only the end of the process stops it.
  bool Stop(MonotonicTime deadline) PAWL_EXCLUDES(mu_);

  // For `run`: waits. Returns false, at once, if the thread is to stop.
  bool Sleep(MonotonicDuration duration) PAWL_EXCLUDES(mu_);
  bool IsStopping() const PAWL_EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  bool stopped_ PAWL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_BACKGROUND_THREAD_H_
