#include "scheduler/rpc/caller_check.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/method_roles.h"

namespace pawl {
namespace {

constexpr size_t kMaxShownName = 64;

// The certificates with which a process can be a node of that role.
RoleSet CertificatesOf(Role role) {
  switch (role) {
    case SERVER_ROLE:
      return RoleSet(PeerRole::kServer);
    case WORKER_ROLE:
      return RoleSet(PeerRole::kWorker);
    case CLIENT_ROLE:
      return RoleSet(PeerRole::kWorker, PeerRole::kClient, PeerRole::kReader, PeerRole::kOperator);
    default:
      return RoleSet();
  }
}

Role RoleOfNode(absl::string_view node) {
  if (absl::StartsWith(node, "server-")) return SERVER_ROLE;
  if (absl::StartsWith(node, "worker-")) return WORKER_ROLE;
  if (absl::StartsWith(node, "client-")) return CLIENT_ROLE;
  return ROLE_UNSPECIFIED;
}

absl::Status CheckAddress(const Peer& peer, const std::string& address) {
  if (peer.hosts.empty() || address.empty()) return absl::OkStatus();
  const absl::StatusOr<HostPort> announced = ParseHostPort(address);
  if (!announced.ok()) return announced.status();
  const absl::string_view host = absl::StripSuffix(absl::StripPrefix(announced->host, "["), "]");
  if (std::find(peer.hosts.begin(), peer.hosts.end(), host) != peer.hosts.end())
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the address ", BoundedText(address, kMaxShownName),
                   " is at none of the hosts of the certificate: ", absl::StrJoin(peer.hosts, ", "),
                   "; set --advertise to one of them"));
}

}  // namespace

absl::Status CheckRegistrationIsOf(const std::optional<Peer>& peer,
                                   const RegisterRequest& request) {
  if (!peer.has_value()) return absl::OkStatus();
  if (!CertificatesOf(request.role()).Contains(peer->identity.role)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "a process with a certificate or token for the role ", RoleName(peer->identity.role),
        " cannot register as ", Role_Name(request.role())));
  }
  if (!request.node().empty()) PAWL_RETURN_IF_ERROR(CheckNodeIsOf(peer, request.node()));
  return CheckAddress(*peer, request.address());
}

bool OnlyReads(const std::optional<Peer>& peer) {
  return peer.has_value() &&
         (peer->identity.role == PeerRole::kReader || peer->identity.role == PeerRole::kOperator);
}

absl::Status CheckNodeIsOf(const std::optional<Peer>& peer, absl::string_view node) {
  if (!peer.has_value() || CertificatesOf(RoleOfNode(node)).Contains(peer->identity.role))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a process with a certificate or token for the role ",
                   RoleName(peer->identity.role), " cannot be ", BoundedText(node, kMaxShownName)));
}

}  // namespace pawl
