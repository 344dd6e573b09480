// Who is at the other end of a call that a process serves.
#ifndef PAWL_CLIENT_LIB_SECURITY_PEER_H_
#define PAWL_CLIENT_LIB_SECURITY_PEER_H_

#include <optional>
#include <string>
#include <vector>

#include "client_lib/security/identity.h"
#include "grpcpp/server_context.h"

namespace pawl {

struct Peer {
  Identity identity;
  // The DNS names and IP addresses of its certificate.
  std::vector<std::string> hosts = {};
  // Empty if it has a certificate.
  std::string token_id = {};

  // The URI of its certificate, or the token's name and id.
  std::string Describe() const;
};

// nullopt on a connection without TLS. With TLS the gate has refused every call of a peer without a
// valid certificate or token, so neither is verified again.
std::optional<Peer> PeerOf(const grpc::ServerContextBase& context);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_PEER_H_
