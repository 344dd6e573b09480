// Who is at the other end of a call that a process serves.
#ifndef PAWL_CLIENT_LIB_SECURITY_PEER_H_
#define PAWL_CLIENT_LIB_SECURITY_PEER_H_

#include <optional>
#include <string>
#include <vector>

#include "client_lib/security/identity.h"
#include "grpcpp/security/auth_context.h"

namespace pawl {

struct Peer {
  Identity identity;
  // The DNS names and IP addresses of its certificate.
  std::vector<std::string> hosts;
};

// nullopt on a connection without TLS. With TLS the gate has refused every call of a peer without
// an identity.
std::optional<Peer> PeerOf(const grpc::AuthContext& context);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_PEER_H_
