// Calls that have been started.
#include <optional>

#include "absl/time/time.h"
#include "client_lib/c/membership.h"

using pawl::c::Fail;

int pawl_wait(pawl_call* call, int64_t timeout_ms) {
  const std::optional<absl::Status> status =
      call->state->Wait(timeout_ms < 0 ? absl::InfiniteDuration() : absl::Milliseconds(timeout_ms));
  if (!status.has_value()) return PAWL_PENDING;
  return status->ok() ? static_cast<int>(PAWL_OK) : Fail(*status);
}

int pawl_call_fd(pawl_call* call) { return call->state->Descriptor(); }

const char* pawl_result(pawl_call* call) { return call->state->result().c_str(); }

void pawl_release(pawl_call* call) { delete call; }
