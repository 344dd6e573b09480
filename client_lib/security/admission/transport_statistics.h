// The kernel's and gRPC's statistics of the connections of a port.
#ifndef PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_
#define PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/clock.h"
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
  // PEM; empty if the peer has none.
  std::string certificate;
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
  std::vector<Socket> TakeNewSockets(MonotonicTime now);
  // nullopt once the connection has ended.
  static std::optional<ServedConnection> Read(intptr_t socket_id);

 private:
  // The server with a socket of the port.
  bool FindServer();

  const int port_;
  // Unknown until the server has a connection.
  std::optional<intptr_t> server_;
  // Sockets get increasing numbers, and become visible within kVisibleWithin, not in order: those
  // from `first_` may be new, unless they are among `returned_`.
  intptr_t first_ = 0;
  std::set<intptr_t> returned_;
  // `first_` advances to `next_first_`, which is older than this by then.
  intptr_t next_first_ = 0;
  MonotonicTime advanced_at_;
};
inline constexpr size_t kMaxNewSockets = 256;
inline constexpr std::chrono::seconds kVisibleWithin{1};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_ADMISSION_TRANSPORT_STATISTICS_H_
