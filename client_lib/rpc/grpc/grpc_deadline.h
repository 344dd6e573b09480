// Deadlines as gRPC takes them.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_DEADLINE_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_DEADLINE_H_

#include "client_lib/base/clock.h"
#include "grpc/support/time.h"
#include "grpcpp/client_context.h"

namespace pawl {

// For a deadline or an alarm. On the monotonic clock: gRPC's C++ interface also takes points of the
// wall clock, and one that is set meanwhile would lengthen or end the call.
gpr_timespec FromNow(MonotonicDuration delay);

// The call ends with DEADLINE_EXCEEDED if it takes longer. To be called before the call starts.
void SetDeadline(grpc::ClientContext& context, MonotonicDuration timeout);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_DEADLINE_H_
