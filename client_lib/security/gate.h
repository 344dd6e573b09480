// The one place that decides whether a call may reach a handler.
#ifndef PAWL_CLIENT_LIB_SECURITY_GATE_H_
#define PAWL_CLIENT_LIB_SECURITY_GATE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/security/identity.h"

namespace pawl {

// Decides by the URIs of the peer's certificate and the path of the rpc. Thread-safe.
class Gate {
 public:
  struct Refusal {
    // The peer's identity, or why it has none.
    std::string peer;
    std::string method;
    std::string reason;
  };
  // Called on gRPC's threads for each refused call; must be thread-safe and must not block.
  using OnRefusal = absl::AnyInvocable<void(const Refusal&) const>;

  // `own`: the certificate of this process. Peers must belong to the same job.
  Gate(Identity own, OnRefusal on_refusal)
      : own_(std::move(own)), on_refusal_(std::move(on_refusal)) {}

  // OK: the peer may call the rpc. UNAUTHENTICATED: it has no identity of this job.
  // PERMISSION_DENIED: its role may not call the rpc. UNIMPLEMENTED: there is no such rpc. The
  // message tells the peer nothing that it does not know; on_refusal gets the details.
  absl::Status Check(const std::vector<std::string>& uris, absl::string_view path) const;

  // The number of refused calls.
  uint64_t refused() const { return refused_; }

 private:
  const Identity own_;
  const OnRefusal on_refusal_;
  mutable std::atomic<uint64_t> refused_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_GATE_H_
