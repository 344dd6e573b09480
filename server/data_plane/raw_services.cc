#include "server/data_plane/raw_services.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"

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

grpc::ServerUnaryReactor* Serve(RequestHandler& handler, const Clock& clock, Method method,
                                grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  auto* reactor = new UnaryReactor();
  if (!request->Valid()) {
    reactor->Finish(
        grpc::Status(grpc::StatusCode::CANCELLED, "the call ended before its message arrived"));
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

}  // namespace

grpc::ServerUnaryReactor* ParameterService::Push(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kPush, context, request, response);
}

grpc::ServerUnaryReactor* ParameterService::Pull(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kPull, context, request, response);
}

grpc::ServerUnaryReactor* ParameterService::EndStep(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kEndStep, context, request, response);
}

grpc::ServerUnaryReactor* ParameterService::TakeOver(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kTakeOver, context, request, response);
}

grpc::ServerUnaryReactor* ReplicationService::Replicate(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kReplicate, context, request, response);
}

grpc::ServerUnaryReactor* ReplicationService::InstallSnapshot(grpc::CallbackServerContext* context,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kInstallSnapshot, context, request, response);
}

grpc::ServerUnaryReactor* ReplicationService::GoBack(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Serve(handler_, clock_, Method::kGoBack, context, request, response);
}

}  // namespace pawl
