// Compares what a caller claims to be with its certificate.
#ifndef PAWL_SCHEDULER_RPC_CALLER_CHECK_H_
#define PAWL_SCHEDULER_RPC_CALLER_CHECK_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/security/peer.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Without TLS (`peer` is nullopt) every claim passes, and every caller may write.

// PERMISSION_DENIED: the certificate's role cannot register as request.role, or as that node; or
// the certificate is bound to hosts, and the announced address is at none of them.
absl::Status CheckRegistrationIsOf(const std::optional<Peer>& peer, const RegisterRequest& request);

// PERMISSION_DENIED: the certificate's role cannot be that node's.
absl::Status CheckNodeIsOf(const std::optional<Peer>& peer, absl::string_view node);

// Whether the certificate or token is for a role that only reads: reader or operator.
bool OnlyReads(const std::optional<Peer>& peer);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_CALLER_CHECK_H_
