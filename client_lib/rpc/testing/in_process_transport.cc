#include "client_lib/rpc/testing/in_process_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace pawl {
namespace {

// The longest sleep of an idle thread.
constexpr std::chrono::seconds kIdle{1};

}  // namespace

ActionThreads::ActionThreads(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ActionThreads::~ActionThreads() {
  {
    MutexLock lock(mu_);
    hurry_ = true;
    ending_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ActionThreads::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  MutexLock lock(mu_);
  // Far deadlines must not overflow.
  delay = std::min<MonotonicDuration>(delay, std::chrono::hours(24));
  actions_.emplace(std::pair(Clock::Real().Now() + delay, next_++), std::move(action));
  changed_.NotifyOne();
}

void ActionThreads::Hurry() {
  MutexLock lock(mu_);
  hurry_ = true;
  changed_.NotifyAll();
}

void ActionThreads::Run() {
  mu_.Lock();
  for (;;) {
    const MonotonicTime now = Clock::Real().Now();
    if (!actions_.empty() && (hurry_ || actions_.begin()->first.first <= now)) {
      absl::AnyInvocable<void()> action = std::move(actions_.begin()->second);
      actions_.erase(actions_.begin());
      mu_.Unlock();
      action();
      action = nullptr;
      mu_.Lock();
    } else if (ending_ && actions_.empty()) {
      break;
    } else {
      MonotonicTime wake = now + kIdle;
      if (!actions_.empty()) wake = std::min<MonotonicTime>(wake, actions_.begin()->first.first);
      changed_.WaitUntil(mu_, wake);
    }
  }
  mu_.Unlock();
}

struct InProcessTransport::Pending {
  uint64_t id = 0;
  std::string address;
  Done done;
  std::atomic<bool> ended{false};
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

InProcessTransport::InProcessTransport(uint64_t seed, int threads)
    : random_(seed), threads_(threads) {}

InProcessTransport::~InProcessTransport() { Shutdown(); }

void InProcessTransport::SetHandler(const std::string& address, RequestHandler* handler) {
  MutexLock lock(mu_);
  handlers_[address] = handler;
}

IncomingMessage InProcessTransport::Copy(const ByteView& bytes) {
  auto copy = std::make_shared<std::vector<std::unique_ptr<char[]>>>();
  std::unique_ptr<char[]> flat(new char[bytes.size()]);
  bytes.CopyTo(flat.get());
  std::vector<size_t> ends = {bytes.size()};
  {
    MutexLock lock(mu_);
    for (uint64_t i = random_() % 4; i > 0; --i) ends.push_back(random_() % (bytes.size() + 1));
  }
  std::sort(ends.begin(), ends.end());
  IncomingMessage message;
  size_t begin = 0;
  for (const size_t end : ends) {
    if (end == begin) continue;
    copy->emplace_back(new char[end - begin]);
    std::memcpy(copy->back().get(), flat.get() + begin, end - begin);
    message.bytes.Append(copy->back().get(), end - begin);
    begin = end;
  }
  message.owner = std::move(copy);
  return message;
}

void InProcessTransport::End(const std::shared_ptr<Pending>& pending, absl::Status status,
                             IncomingMessage answer) {
  if (pending->ended.exchange(true)) return;
  pending->cancelled->store(true);
  {
    MutexLock lock(mu_);
    pending_.erase(pending->id);
  }
  pending->done(std::move(status), std::move(answer));
  pending->done = nullptr;
}

void InProcessTransport::Call(const std::string& address, Method method, OutgoingMessage request,
                              MonotonicDuration timeout, Done done) {
  auto pending = std::make_shared<Pending>();
  pending->address = address;
  pending->done = std::move(done);
  IncomingMessage copy = Copy(request.bytes);
  request.owner.reset();
  bool shut_down;
  {
    MutexLock lock(mu_);
    shut_down = shut_down_;
    pending->id = next_++;
    if (!shut_down) pending_.emplace(pending->id, pending);
  }
  if (shut_down) {
    End(pending, absl::CancelledError("the transport is shut down"), IncomingMessage());
    return;
  }
  const MonotonicTime deadline =
      Clock::Real().Now() + std::min<MonotonicDuration>(timeout, std::chrono::hours(24));
  threads_.After(timeout, [this, pending] {
    End(pending, absl::DeadlineExceededError("no answer in time"), IncomingMessage());
  });
  threads_.After(MonotonicDuration::zero(), [this, address, method, copy = std::move(copy),
                                             deadline, pending]() mutable {
    RequestHandler* handler = nullptr;
    {
      MutexLock lock(mu_);
      const auto it = handlers_.find(address);
      if (it != handlers_.end()) handler = it->second;
    }
    if (handler == nullptr) {
      End(pending, absl::UnavailableError("no server at " + address), IncomingMessage());
      return;
    }
    handler->Handle(method, std::move(copy), CallContext{deadline, pending->cancelled},
                    [this, pending](absl::Status status, OutgoingMessage answer) {
                      // Not on the handler's stack: a client may call again from its callback.
                      const bool ok = status.ok();
                      threads_.After(
                          MonotonicDuration::zero(),
                          [this, pending, status = std::move(status),
                           message = ok ? Copy(answer.bytes) : IncomingMessage()]() mutable {
                            End(pending, std::move(status), std::move(message));
                          });
                    });
  });
}

void InProcessTransport::CancelCalls(const std::string& address) {
  std::vector<std::shared_ptr<Pending>> cancelled;
  {
    MutexLock lock(mu_);
    for (const auto& [id, call] : pending_) {
      if (call->address == address) cancelled.push_back(call);
    }
  }
  for (const std::shared_ptr<Pending>& call : cancelled) {
    threads_.After(MonotonicDuration::zero(), [this, call] {
      End(call, absl::CancelledError("the call was cancelled"), IncomingMessage());
    });
  }
}

void InProcessTransport::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  threads_.After(delay, std::move(action));
}

void InProcessTransport::Shutdown() {
  std::map<uint64_t, std::shared_ptr<Pending>> pending;
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    pending.swap(pending_);
  }
  for (const auto& [id, call] : pending) {
    End(call, absl::CancelledError("the transport is shut down"), IncomingMessage());
  }
  threads_.Hurry();
}

}  // namespace pawl
