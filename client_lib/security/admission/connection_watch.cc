#include "client_lib/security/admission/connection_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/tls/certificate_uris.h"

namespace pawl {
namespace {

std::optional<SocketBytes> ReadBytes(const ConnectionWatch::Connection& connection) {
  // gRPC may close the descriptor at any time, and another socket get it: look at a copy.
  const int copy = fcntl(connection.descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return std::nullopt;
  std::optional<SocketBytes> bytes;
  if (SocketInode(copy) == connection.inode) bytes = ReadSocketBytes(copy);
  close(copy);
  return bytes;
}

// gRPC counts a stream that was reset as ended only when it has freed it, which may take long.
ConnectionLedger::Streams StreamsOf(const ServedConnection& served) {
  const uint64_t at_least_ended =
      served.started > kMaxStreamsPerConnection ? served.started - kMaxStreamsPerConnection : 0;
  return {served.started, std::max(served.ended, at_least_ended)};
}

// The process has used them.
double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

std::vector<ConnectionLedger::Offender> ConnectionWatch::Look(
    const std::vector<Connection>& connections, MonotonicTime now) {
  looked_at_ = now;
  Identify(now);
  if (!Reads(now)) return ledger_.TakeOffenders();
  read_at_ = now;
  const double processor_seconds = ProcessorSeconds();
  int read = 0;
  // Those beyond kMaxReadAtOnce come first at the next look.
  const size_t first = first_;
  for (size_t i = 0; i < connections.size(); ++i) {
    const size_t at = (first + i) % connections.size();
    const Connection& connection = connections[at];
    const std::optional<SocketBytes> bytes = ReadBytes(connection);
    if (!bytes.has_value()) continue;
    const std::string& name = connection.connection;
    ledger_.OnBytes(name, {bytes->received, bytes->unread, bytes->sent}, processor_seconds, now);
    if (read >= kMaxReadAtOnce || !ledger_.WantsStreams(name)) continue;
    const auto socket = sockets_.find(name);
    if (socket == sockets_.end()) continue;
    if (++read == kMaxReadAtOnce) first_ = at + 1;
    const std::optional<ServedConnection> served = TransportStatistics::Read(socket->second);
    if (served.has_value()) ledger_.OnStreams(name, StreamsOf(*served), now);
  }
  return ledger_.TakeOffenders();
}

void ConnectionWatch::Identify(MonotonicTime now) {
  for (const TransportStatistics::Socket& socket : statistics_.TakeNewSockets(now)) {
    const std::optional<ServedConnection> served = TransportStatistics::Read(socket.id);
    if (!served.has_value()) continue;
    const std::vector<std::string> uris = CertificateUris(served->certificate);
    sockets_[socket.remote.connection] = socket.id;
    ledger_.Identify(socket.remote.connection, PeerName(uris, socket.remote.host),
                     is_trusted_ != nullptr && is_trusted_(uris), now);
  }
}

void ConnectionWatch::Sweep(const std::function<bool(const std::string&)>& is_open,
                            MonotonicTime now) {
  ledger_.Sweep(is_open, now);
  absl::erase_if(sockets_, [&](const auto& entry) { return !is_open(entry.first); });
}

}  // namespace pawl
