#include "client_lib/daemon/background_thread.h"

#include <utility>

namespace pawl {

BackgroundThread::~BackgroundThread() {
  if (!thread_.joinable()) return;
  Stop(Clock::Real().Now());
  thread_.join();
}

void BackgroundThread::Start(std::function<void()> run) {
  thread_ = std::thread([this, run = std::move(run)] {
    run();
    MutexLock lock(mu_);
    stopped_ = true;
    changed_.NotifyAll();
  });
}

bool BackgroundThread::Stop(MonotonicTime deadline) {
  MutexLock lock(mu_);
  stopping_ = true;
  changed_.NotifyAll();
  while (!stopped_) {
    if (!changed_.WaitUntil(mu_, deadline)) break;
  }
  return stopped_;
}

bool BackgroundThread::Sleep(MonotonicDuration duration) {
  const MonotonicTime until = Clock::Real().Now() + duration;
  MutexLock lock(mu_);
  while (!stopping_ && changed_.WaitUntil(mu_, until)) {
  }
  return !stopping_;
}

bool BackgroundThread::IsStopping() const {
  MutexLock lock(mu_);
  return stopping_;
}

}  // namespace pawl
