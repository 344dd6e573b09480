// absl::Status over gRPC, with its payloads.
//
// The routing payload (kRoutingPayloadUrl) travels as the status's error details;
// the pushback payload (kPushbackPayloadUrl) as the trailing metadata "grpc-retry-pushback-ms".
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_STATUS_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_STATUS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace pawl {

// Longer messages are cut: they travel as a header.
inline constexpr size_t kMaxStatusMessageBytes = 4096;

// `context`, if not null, gets the metadata.
grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context = nullptr);

// `context`, if not null, is that of the finished call.
absl::Status FromGrpcStatus(const grpc::Status& status,
                            const grpc::ClientContext* context = nullptr);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_STATUS_H_
