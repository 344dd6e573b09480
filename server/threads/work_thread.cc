#include "server/threads/work_thread.h"

#include <chrono>
#include <utility>

namespace pawl {
namespace {

// Every wait has a limit; nothing depends on this one.
constexpr std::chrono::seconds kWakeInterval{60};

}  // namespace

void WorkThread::Add(absl::AnyInvocable<void()> work) {
  {
    MutexLock lock(mu_);
    if (!stopping_) {
      queue_.push_back(std::move(work));
      wake_.NotifyOne();
      return;
    }
  }
  work();
}

void WorkThread::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkThread::Run() {
  while (true) {
    absl::AnyInvocable<void()> work;
    {
      MutexLock lock(mu_);
      while (!stopping_ && queue_.empty())
        wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kWakeInterval);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace pawl
