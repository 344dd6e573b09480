// Conversions between Pawl's types and gRPC's: statuses with their payloads, and deadlines.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONVERSIONS_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONVERSIONS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "grpc/support/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace pawl {

// Longer messages are truncated: they travel as a header.
inline constexpr size_t kMaxStatusMessageBytes = 4096;

// The routing payload (kRoutingPayloadUrl) and the challenge (kRebuildChallengePayloadUrl) travel
// as the status's error details, the pushback payload (kPushbackPayloadUrl) as the trailing
// metadata "grpc-retry-pushback-ms".

// `context`, unless null, receives the metadata.
grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context = nullptr);

// `context`, unless null, is that of the finished call.
absl::Status FromGrpcStatus(const grpc::Status& status,
                            const grpc::ClientContext* context = nullptr);

// The time `delay` from now, for a deadline or an alarm, on the monotonic clock: with gRPC's
// wall-clock deadlines, setting the clock would lengthen or end a call.
gpr_timespec FromNow(MonotonicDuration delay);

// Lets the call end with DEADLINE_EXCEEDED after `timeout`. REQUIRES: the call has not started.
void SetDeadline(grpc::ClientContext& context, MonotonicDuration timeout);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CONVERSIONS_H_
