#include "server/data_plane/raw_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/security/admission/admitted_call.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"

namespace pawl {
namespace {

// The longest deadline of a call, also for a caller that sets none.
constexpr std::chrono::minutes kMaxDeadline{10};

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  const std::shared_ptr<std::atomic<bool>>& cancelled() const { return cancelled_; }

 private:
  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }
  void OnDone() override { delete this; }

  // The call's context may outlive the reactor.
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

RawService::RawService(RequestHandler& handler, const Clock& clock,
                       std::initializer_list<Method> methods)
    : handler_(handler), clock_(clock) {
  // What the generated WithRawCallbackMethod_ classes do for each rpc.
  int index = 0;
  for (const Method method : methods) {
    AddMethod(new grpc::internal::RpcServiceMethod(FullName(method).c_str(),
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(
        index++, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                     [this, method](grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
                       return Serve(method, context, request, response);
                     }));
  }
}

grpc::ServerUnaryReactor* RawService::Serve(Method method, grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor();
  if (!request->Valid()) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::CANCELLED, "the call ended before its message arrived"));
    return reactor;
  }
  if (absl::Status refusal = RefusalOf(*context); !refusal.ok()) {
    reactor->Finish(ToGrpcStatus(refusal, context));
    return reactor;
  }
  CallContext call;
  const auto remaining = std::min<std::chrono::system_clock::duration>(
      context->deadline() - std::chrono::system_clock::now(), kMaxDeadline);
  call.deadline = clock_.Now() + std::chrono::duration_cast<MonotonicDuration>(remaining);
  call.cancelled = reactor->cancelled();
  handler_.Handle(method, FromByteBuffer(*request), std::move(call),
                  [reactor, context, response](absl::Status status, OutgoingMessage message) {
                    if (status.ok()) *response = ToByteBuffer(std::move(message));
                    reactor->Finish(ToGrpcStatus(status, context));
                  });
  return reactor;
}

}  // namespace pawl
