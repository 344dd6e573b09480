#include "server/threads/shared_work.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "server/replication/waiting_calls.h"

namespace pawl {
namespace {

struct SharedWork {
  size_t count = 0;
  std::function<std::vector<std::shared_ptr<WaitingCall>>(size_t)> work;
  absl::AnyInvocable<void()> done;
  std::atomic<size_t> next{0};
  std::atomic<size_t> left{0};

  void Help() {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      const auto ready = work(i);
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::exchange(done, nullptr)();
        // Help that nobody has taken up yet keeps this object, and must not keep a message.
        work = nullptr;
      }
      WaitingCalls::ResumeReady(ready);
    }
  }
};

}  // namespace

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
      helpers == nullptr ? 0 : std::min(helpers->size(), (count - 1) / kPartitionsAPiece);
  for (size_t i = 0; i < helping; ++i) helpers->Offer([shared] { shared->Help(); });
  shared->Help();
}

}  // namespace pawl
