#include "server/threads/helper_threads.h"

#include <chrono>
#include <utility>

namespace pawl {
namespace {

// No wait is without a limit; nothing depends on it.
constexpr std::chrono::seconds kWakeInterval{5};

}  // namespace

HelperThreads::HelperThreads(size_t threads) : size_(threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

HelperThreads::~HelperThreads() { Stop(); }

void HelperThreads::Offer(absl::AnyInvocable<void()> help) {
  MutexLock lock(mu_);
  if (stopping_ || size_ == 0 || waiting_.size() >= kMaxHelpWaiting) return;
  waiting_.push_back(std::move(help));
  wake_.NotifyOne();
}

void HelperThreads::Stop() {
  std::deque<absl::AnyInvocable<void()>> dropped;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    dropped.swap(waiting_);
    wake_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void HelperThreads::Run() {
  while (true) {
    absl::AnyInvocable<void()> help;
    {
      MutexLock lock(mu_);
      while (!stopping_ && waiting_.empty())
        wake_.WaitUntil(mu_, std::chrono::steady_clock::now() + kWakeInterval);
      if (stopping_) return;
      help = std::move(waiting_.front());
      waiting_.pop_front();
    }
    help();
  }
}

}  // namespace pawl
