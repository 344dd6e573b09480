#include "client_lib/security/peer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/security/token/token.h"
#include "grpc/grpc_security_constants.h"

namespace pawl {
namespace {

std::vector<std::string> Values(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(property))
    values.emplace_back(value.data(), value.size());
  return values;
}

// As the gate judges: by the token only if the connection has no certificate.
std::optional<Peer> PeerWithToken(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find(kTokenMetadata);
  if (found == context.client_metadata().end()) return std::nullopt;
  const absl::StatusOr<TokenParts> parts =
      ReadToken(TokenTextOf(absl::string_view(found->second.data(), found->second.size())));
  if (!parts.ok()) return std::nullopt;
  return Peer{.identity = parts->token.identity, .token_id = parts->token.id};
}

bool IsEncrypted(const grpc::AuthContext& context) {
  const std::vector<std::string> types =
      Values(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return std::any_of(types.begin(), types.end(), [](const std::string& type) {
    return type == GRPC_TLS_TRANSPORT_SECURITY_TYPE || type == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
  });
}

}  // namespace

std::string Peer::Describe() const {
  return token_id.empty() ? identity.Uri() : Token{identity, token_id, 0, 0}.Describe();
}

std::optional<Peer> PeerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection == nullptr || !IsEncrypted(*connection)) return std::nullopt;
  const std::vector<std::string> uris = Values(*connection, "peer_uri");
  if (uris.empty()) return PeerWithToken(context);
  absl::StatusOr<Identity> identity = IdentityAmong(uris);
  if (!identity.ok()) return std::nullopt;
  Peer peer{.identity = *std::move(identity), .hosts = Values(*connection, "peer_dns")};
  for (std::string& address : Values(*connection, "peer_ip"))
    peer.hosts.push_back(std::move(address));
  return peer;
}

}  // namespace pawl
