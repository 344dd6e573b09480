// The address of the other end of a connection.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_REMOTE_ADDRESS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_REMOTE_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

struct RemoteAddress {
  // "10.0.0.2:4711" or "[fd00::2]:4711". Identifies a connection, because a GuardedPort accepts one
  // for each remote port.
  std::string connection;
  // Tells hosts apart: "10.0.0.2", or the first 64 bits of an IPv6 address, such as "fd00::",
  // because a host has all addresses below them.
  std::string host;
};

// Both fields are empty for an address of another family.
RemoteAddress RemoteAddressOf(const sockaddr_storage& address);

// The same from gRPC's name of a peer, such as "ipv4:10.0.0.2:4711" or
// "ipv6:%5Bfd00::2%5D:4711".
RemoteAddress RemoteAddressOfPeer(absl::string_view peer);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_REMOTE_ADDRESS_H_
