// Whether a call exceeds the limits of its peer, for the services of a process.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_ADMITTED_CALL_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_ADMITTED_CALL_H_

#include "absl/status/status.h"
#include "grpcpp/server_context.h"

namespace pawl {

// The context of a call to a GuardedPort.
class AdmittedCallContext final : public grpc::CallbackServerContext {
 public:
  // Set before the handler runs.
  absl::Status refusal;
};

// RESOURCE_EXHAUSTED, with a pushback: the handler must answer the call with this and do nothing
// else. OK for a call to a port without quotas.
inline absl::Status RefusalOf(const grpc::CallbackServerContext& context) {
  const auto* const admitted = dynamic_cast<const AdmittedCallContext*>(&context);
  return admitted == nullptr ? absl::OkStatus() : admitted->refusal;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_ADMITTED_CALL_H_
