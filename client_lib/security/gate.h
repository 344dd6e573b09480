// The one place that decides whether a call may reach a handler.
#ifndef PAWL_CLIENT_LIB_SECURITY_GATE_H_
#define PAWL_CLIENT_LIB_SECURITY_GATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/token/token_verifier.h"

namespace pawl {

// Decides by the URIs of the peer's certificate, or its token, and the path of the rpc.
// Thread-safe.
class Gate {
 public:
  struct Refusal {
    // The certificate's URI or the token's name and id; "unknown" without either.
    std::string peer;
    std::string method;
    std::string reason;
    // The code that the peer gets.
    absl::StatusCode code;
  };
  // Called on gRPC's threads for each refused call; must be thread-safe and must not block.
  using OnRefusal = absl::AnyInvocable<void(const Refusal&) const>;

  // `own`: the certificate of this process. Peers must belong to the same job. `tokens` may be
  // null: no token is accepted.
  Gate(Identity own, OnRefusal on_refusal, std::shared_ptr<const TokenVerifier> tokens = nullptr)
      : own_(std::move(own)), on_refusal_(std::move(on_refusal)), tokens_(std::move(tokens)) {}

  // OK: the peer may call the rpc. UNAUTHENTICATED: it has no identity of this job.
  // PERMISSION_DENIED: its role may not call the rpc. UNIMPLEMENTED: there is no such rpc. The
  // message tells the peer no more than the documents do; on_refusal gets the details.
  // `authorization` is the call's metadata kTokenMetadata. It counts only for a peer without a
  // certificate.
  absl::Status Check(const std::vector<std::string>& uris, absl::string_view path,
                     absl::string_view authorization = "") const;

  // The number of refused calls.
  uint64_t refused() const { return refused_; }

 private:
  const Identity own_;
  const OnRefusal on_refusal_;
  const std::shared_ptr<const TokenVerifier> tokens_;
  mutable std::atomic<uint64_t> refused_ = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_GATE_H_
