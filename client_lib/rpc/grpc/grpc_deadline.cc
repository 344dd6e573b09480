#include "client_lib/rpc/grpc/grpc_deadline.h"

#include <chrono>
#include <cstdint>

namespace pawl {

gpr_timespec FromNow(MonotonicDuration delay) {
  const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(delay).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

void SetDeadline(grpc::ClientContext& context, MonotonicDuration timeout) {
  context.set_deadline(FromNow(timeout));
}

}  // namespace pawl
