#include "deploy/pawlctl/server_connection.h"

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/create_channel.h"

namespace pawl {

ServerConnection::ServerConnection(const ServerAddress& server, const Security& security)
    : server_(server),
      stub_(ServerControl::NewStub(
          grpc::CreateCustomChannel(server.address(), security.To(RoleSet(PeerRole::kServer)),
                                    ChannelSettings(ChannelKind::kControl)))) {}

absl::StatusOr<FingerprintResponse> ServerConnection::Fingerprint(const FingerprintRequest& request,
                                                                  MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  FingerprintResponse response;
  if (const grpc::Status status = stub_->Fingerprint(&context, request, &response); !status.ok())
    return ToStatus(status);
  return response;
}

absl::StatusOr<InspectResponse> ServerConnection::Inspect(const InspectRequest& request,
                                                          MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  InspectResponse response;
  if (const grpc::Status status = stub_->Inspect(&context, request, &response); !status.ok())
    return ToStatus(status);
  return response;
}

absl::Status ServerConnection::ToStatus(const grpc::Status& status) const {
  const absl::Status answer = FromGrpcStatus(status);
  return absl::Status(
      answer.code(),
      absl::StrCat(server_.node(), " at ", server_.address(), ": ", std::string(answer.message()),
                   absl::IsDeadlineExceeded(answer)
                       ? " (a larger --timeout gives it more time to read its parameters)"
                       : ""));
}

}  // namespace pawl
