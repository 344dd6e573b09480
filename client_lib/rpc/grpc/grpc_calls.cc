#include "client_lib/rpc/grpc/grpc_calls.h"

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// After Shutdown nothing takes longer than keepalive needs to break a connection. If something
// does, it is a bug, and continuing would free memory in use.
constexpr std::chrono::seconds kShutdownLimit{30};

}  // namespace

// Deletes itself.
class GrpcCalls::OneCall {
 public:
  OneCall(GrpcCalls& calls, std::shared_ptr<grpc::ClientContext> context,
          std::shared_ptr<grpc::GenericStub> stub, Transport::Done done,
          absl::AnyInvocable<void()> stuck)
      : calls_(calls),
        context_(std::move(context)),
        stub_(std::move(stub)),
        done_(std::move(done)),
        stuck_(std::move(stuck)) {}

  void Start(const std::string& method, OutgoingMessage request, MonotonicDuration timeout) {
    SetDeadline(*context_, timeout);
    request_ = ToByteBuffer(std::move(request), [this] { OnReleased(); });
    stub_->UnaryCall(context_.get(), method, grpc::StubOptions(), &request_, &response_,
                     [this](grpc::Status status) { OnRpcEnd(status); });
  }

 private:
  void OnRpcEnd(const grpc::Status& status) {
    status_ = FromGrpcStatus(status, context_.get());
    // The context keeps gRPC's call alive, which keeps the unwritten slices alive.
    request_.Clear();
    std::shared_ptr<grpc::ClientContext> other_reference;
    {
      MutexLock lock(calls_.mu_);
      const auto it = calls_.calls_.find(this);
      other_reference = std::move(it->second.context);
      calls_.calls_.erase(it);
    }
    other_reference.reset();
    context_.reset();
    stub_.reset();
    auto stuck = std::move(stuck_);
    auto released = released_;
    GrpcCalls& calls = calls_;
    // From here on another thread may delete *this.
    const bool finishes = waiting_for_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (!finishes) {
      calls.After(kMaxBorrowAfterRpc, [released, stuck = std::move(stuck)]() mutable {
        if (!released->load(std::memory_order_acquire)) stuck();
      });
    }
    {
      MutexLock lock(calls.mu_);
      if (--calls.rpcs_ == 0) calls.idle_.NotifyAll();
    }
    if (finishes) Finish();
  }

  // Runs wherever gRPC drops the last slice. If the rpc has ended by then, the caller's code must
  // not run here, in the middle of gRPC.
  void OnReleased() {
    released_->store(true, std::memory_order_release);
    if (waiting_for_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    calls_.After(MonotonicDuration::zero(), [this] { Finish(); });
  }

  void Finish() {
    GrpcCalls& calls = calls_;
    {
      const std::unique_ptr<OneCall> self(this);
      const bool ok = status_.ok();
      done_(std::move(status_), ok ? FromByteBuffer(response_) : IncomingMessage());
    }
    calls.Forget();
  }

  GrpcCalls& calls_;
  std::shared_ptr<grpc::ClientContext> context_;
  std::shared_ptr<grpc::GenericStub> stub_;
  Transport::Done done_;
  absl::AnyInvocable<void()> stuck_;
  const std::shared_ptr<std::atomic<bool>> released_ = std::make_shared<std::atomic<bool>>(false);
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  absl::Status status_;
  // Waits for two events: the end of the rpc, and the release of the request's memory.
  std::atomic<int> waiting_for_{2};
};

GrpcCalls::GrpcCalls() : timer_thread_([this] { RunTimers(); }) {}

GrpcCalls::~GrpcCalls() {
  Shutdown();
  {
    MutexLock lock(mu_);
    WaitFor("rpcs have not ended", rpcs_);
    WaitFor("gRPC calls have not ended", pending_);
  }
  timer_queue_.Shutdown();
  timer_thread_.join();
}

void GrpcCalls::RunTimers() {
  void* tag = nullptr;
  bool ok = false;
  while (timer_queue_.Next(&tag, &ok)) {
    std::unique_ptr<Timer> timer(static_cast<Timer*>(tag));
    {
      MutexLock lock(mu_);
      timers_.erase(timer.get());
    }
    timer->action();
    timer.reset();
    Forget();
  }
}

void GrpcCalls::WaitForRpcs() {
  MutexLock lock(mu_);
  WaitFor("rpcs have not ended", rpcs_);
}

void GrpcCalls::WaitFor(const char* what, const uint64_t& count) {
  const MonotonicTime limit = Clock::Real().Now() + kShutdownLimit;
  while (count > 0) {
    if (!idle_.WaitUntil(mu_, limit) && count > 0) {
      spdlog::critical("{} {} {} s after they were cancelled", count, what, kShutdownLimit.count());
      std::abort();
    }
  }
}

void GrpcCalls::Start(std::shared_ptr<grpc::GenericStub> stub, const std::string& address,
                      const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
                      Transport::Done done, absl::AnyInvocable<void()> stuck) {
  auto context = std::make_shared<grpc::ClientContext>();
  OneCall* call = nullptr;
  {
    MutexLock lock(mu_);
    if (!shut_down_) {
      call = new OneCall(*this, context, std::move(stub), std::move(done), std::move(stuck));
      calls_.emplace(call, Rpc{address, std::move(context)});
      ++pending_;
      ++rpcs_;
    }
  }
  if (call == nullptr) {
    request.owner.reset();
    // Only a call takes it away. NOLINTNEXTLINE(bugprone-use-after-move)
    done(absl::CancelledError("the transport is shut down"), IncomingMessage());
    return;
  }
  // The context remembers a cancellation that comes before the start.
  call->Start(method, std::move(request), timeout);
}

void GrpcCalls::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  auto* const timer = new Timer{{}, std::move(action)};
  MutexLock lock(mu_);
  timers_.insert(timer);
  ++pending_;
  timer->alarm.Set(&timer_queue_, FromNow(shut_down_ ? MonotonicDuration::zero() : delay), timer);
}

void GrpcCalls::Shutdown() {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  {
    MutexLock lock(mu_);
    shut_down_ = true;
    for (const auto& [call, rpc] : calls_) contexts.push_back(rpc.context);
    for (Timer* const timer : timers_) timer->alarm.Cancel();
  }
  // Outside the lock: it may drop the last slice of a request, which takes the lock.
  for (const auto& context : contexts) context->TryCancel();
}

std::vector<std::shared_ptr<grpc::ClientContext>> GrpcCalls::ContextsTo(
    const std::string& address) {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  MutexLock lock(mu_);
  for (const auto& [call, rpc] : calls_) {
    if (rpc.address == address) contexts.push_back(rpc.context);
  }
  return contexts;
}

void GrpcCalls::Cancel(const std::string& address) {
  for (const auto& context : ContextsTo(address)) context->TryCancel();
}

void GrpcCalls::CancelAndThen(const std::string& address, absl::AnyInvocable<void()> then) {
  After(MonotonicDuration::zero(),
        [contexts = ContextsTo(address), then = std::move(then)]() mutable {
          for (const auto& context : contexts) context->TryCancel();
          contexts.clear();
          then();
        });
}

void GrpcCalls::Forget() {
  MutexLock lock(mu_);
  if (--pending_ == 0) idle_.NotifyAll();
}

}  // namespace pawl
