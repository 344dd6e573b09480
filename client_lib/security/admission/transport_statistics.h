// What the kernel and gRPC know of the connections of a port.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client_lib/security/admission/remote_address.h"

namespace pawl {

// Identifies a socket as long as it is open. 0: `descriptor` is no socket.
uint64_t SocketInode(int descriptor);

// Bytes of a TCP connection since it began.
struct SocketBytes {
  // Those that the process has read, and those that it has not read yet.
  uint64_t received = 0;
  uint64_t unread = 0;
  uint64_t sent = 0;
};
// nullopt if `descriptor` is no TCP connection.
std::optional<SocketBytes> ReadSocketBytes(int descriptor);

// Counters of a connection that gRPC serves, since it began.
struct ServedConnection {
  // Streams.
  uint64_t started = 0;
  uint64_t ended = 0;
  // The port of this end.
  int port = 0;
  // The URIs of the peer's certificate.
  std::vector<std::string> uris;
};

// Asks gRPC's channelz, in which each connection that has ended its handshake is a socket. For one
// thread.
class TransportStatistics {
 public:
  struct Socket {
    intptr_t id = 0;
    RemoteAddress remote;
  };

  // `port`: of the server.
  explicit TransportStatistics(int port) : port_(port) {}

  // The connections that have ended their handshake and were not returned before, at most
  // kMaxNewSockets.
  std::vector<Socket> TakeNewSockets();
  // nullopt once the connection has ended.
  static std::optional<ServedConnection> Read(intptr_t socket_id);

 private:
  // The server with a socket of the port.
  bool FindServer();

  const int port_;
  // Unknown until the server has a connection.
  std::optional<intptr_t> server_;
  // Sockets get increasing numbers, and become visible a little later, not in order: those from
  // `first_` may be new, unless they are among `returned_`.
  intptr_t first_ = 0;
  std::set<intptr_t> returned_;
};
inline constexpr intptr_t kMaxNewSockets = 256;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_
