#include "server/data_plane/raw_call.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/grpc/grpc_status.h"

namespace pawl {
namespace {

// A caller without a deadline, or with one in the far future, gets this one: nothing waits for
// ever.
constexpr std::chrono::minutes kMaxDeadline{10};

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  const std::shared_ptr<std::atomic<bool>>& cancelled() const { return cancelled_; }

 private:
  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnDone() override { delete this; }

  // Outlives the reactor in the call's context.
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

grpc::ServerUnaryReactor* ServeRaw(RequestHandler& handler, const Clock& clock, Method method,
                                   grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor();
  if (!request->Valid()) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::CANCELLED, "the call ended before its message was there"));
    return reactor;
  }
  CallContext call;
  const auto remaining = std::min<std::chrono::system_clock::duration>(
      context->deadline() - std::chrono::system_clock::now(), kMaxDeadline);
  call.deadline = clock.Now() + std::chrono::duration_cast<MonotonicDuration>(remaining);
  call.cancelled = reactor->cancelled();
  handler.Handle(method, FromByteBuffer(*request), std::move(call),
                 [reactor, context, response](absl::Status status, OutgoingMessage message) {
                   if (status.ok()) *response = ToByteBuffer(std::move(message));
                   reactor->Finish(ToGrpcStatus(status, context));
                 });
  return reactor;
}

}  // namespace pawl
