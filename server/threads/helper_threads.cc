#include "server/threads/helper_threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "server/replication/waiting_calls.h"

namespace pawl {
namespace {

// Every wait has a limit; nothing depends on this one.
constexpr std::chrono::seconds kWakeInterval{5};

struct SharedWork {
  size_t count = 0;
  std::function<std::vector<std::shared_ptr<WaitingCall>>(size_t)> work;
  absl::AnyInvocable<void()> done;
  std::atomic<size_t> next{0};
  std::atomic<size_t> left{0};

  void Run() {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      const auto ready = work(i);
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::exchange(done, nullptr)();
        // An offer that no thread has taken yet keeps this object. It must not keep a message.
        work = nullptr;
      }
      WaitingCalls::ResumeReady(ready);
    }
  }
};

}  // namespace

HelperThreads::HelperThreads(size_t threads) : size_(threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

HelperThreads::~HelperThreads() { Stop(); }

void HelperThreads::Offer(absl::AnyInvocable<void()> help) {
  MutexLock lock(mu_);
  if (stopping_ || size_ == 0 || waiting_.size() >= kMaxPendingOffers) return;
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

void ShareWork(HelperThreads* helpers, size_t count,
               std::function<std::vector<std::shared_ptr<WaitingCall>>(size_t)> work,
               absl::AnyInvocable<void()> done) {
  if (count == 0) return done();
  const auto shared = std::make_shared<SharedWork>();
  shared->count = count;
  shared->work = std::move(work);
  shared->done = std::move(done);
  shared->left = count;
  const size_t helping =
      helpers == nullptr ? 0 : std::min(helpers->size(), (count - 1) / kMinPartitionsPerThread);
  for (size_t i = 0; i < helping; ++i) helpers->Offer([shared] { shared->Run(); });
  shared->Run();
}

}  // namespace pawl
