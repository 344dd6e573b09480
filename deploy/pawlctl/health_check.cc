#include "deploy/pawlctl/health_check.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/method_roles.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace pawl {
namespace {

// HealthCheckResponse{status: SERVING}. The empty HealthCheckRequest has no bytes.
constexpr absl::string_view kServing = "\x08\x01";

absl::StatusOr<std::string> BytesOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (const grpc::Status status = buffer.DumpToSingleSlice(&slice); !status.ok())
    return FromGrpcStatus(status);
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

}  // namespace

absl::StatusOr<bool> IsServing(const std::string& address, const Security& security,
                               MonotonicDuration timeout) {
  constexpr RoleSet kDaemons(PeerRole::kScheduler, PeerRole::kServer, PeerRole::kWorker);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, security.To(kDaemons),
                                                   ChannelSettings(ChannelKind::kControl)));
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  grpc::CompletionQueue queue;
  // A buffer without a slice is not an empty message.
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return Annotate(FromGrpcStatus(status), address);
  PAWL_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(response));
  return bytes == kServing;
}

}  // namespace pawl
