#include "client_lib/security/peer.h"

#include "absl/status/statusor.h"

namespace pawl {
namespace {

std::vector<std::string> Values(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(property))
    values.emplace_back(value.data(), value.size());
  return values;
}

}  // namespace

std::optional<Peer> PeerOf(const grpc::AuthContext& context) {
  absl::StatusOr<Identity> identity = IdentityAmong(Values(context, "peer_uri"));
  if (!identity.ok()) return std::nullopt;
  Peer peer{*std::move(identity), Values(context, "peer_dns")};
  for (std::string& address : Values(context, "peer_ip")) peer.hosts.push_back(std::move(address));
  return peer;
}

}  // namespace pawl
