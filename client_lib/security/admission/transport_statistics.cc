#include "client_lib/security/admission/transport_statistics.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

using nlohmann::json;

// Sockets that gRPC lists at once.
constexpr intptr_t kPageSockets = 256;
// How gRPC begins the name of a socket.
constexpr absl::string_view kSocketName = "chttp2 ";

// Takes gRPC's text, null if there is no such object.
json Parse(char* text) {
  if (text == nullptr) return {};
  const std::unique_ptr<char, void (*)(void*)> owned(text, gpr_free);
  json parsed = json::parse(text, nullptr, false);
  return parsed.is_object() ? parsed : json();
}

// gRPC writes 64-bit numbers as strings, and omits zeros.
int64_t Number(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  int64_t number = 0;
  if (!found->is_string() || !absl::SimpleAtoi(found->get_ref<const std::string&>(), &number))
    return 0;
  return number;
}

const json& At(const json& object, const char* name) {
  static const auto* const kNone = new json(json::object());
  const auto found = object.find(name);
  return found != object.end() && (found->is_object() || found->is_array()) ? *found : *kNone;
}

std::string Text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<TransportStatistics::Socket> SocketsFrom(intptr_t server, intptr_t first) {
  std::vector<TransportStatistics::Socket> sockets;
  const json answer = Parse(grpc_channelz_get_server_sockets(server, first, kPageSockets));
  for (const json& socket : At(answer, "socketRef")) {
    const std::string name = Text(socket, "name");
    sockets.push_back(
        {Number(socket, "socketId"), RemoteAddressOfPeer(absl::StripPrefix(name, kSocketName))});
  }
  return sockets;
}

}  // namespace

uint64_t SocketInode(int descriptor) {
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISSOCK(status.st_mode)) return 0;
  return status.st_ino;
}

std::optional<SocketBytes> ReadSocketBytes(int descriptor) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  int unread = 0;
  // In this order, bytes that arrive meanwhile count as read early. Otherwise they would seem to
  // disappear until the next time.
  if (ioctl(descriptor, FIONREAD, &unread) != 0 ||
      getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_sent) + sizeof(info.tcpi_bytes_sent)) {
    return std::nullopt;
  }
  SocketBytes bytes;
  bytes.unread = static_cast<uint64_t>(unread);
  if (info.tcpi_bytes_received > bytes.unread)
    bytes.received = info.tcpi_bytes_received - bytes.unread;
  bytes.sent = info.tcpi_bytes_sent;
  return bytes;
}

std::optional<ServedConnection> TransportStatistics::Read(intptr_t socket_id) {
  const json answer = Parse(grpc_channelz_get_socket(socket_id));
  const json& socket = At(answer, "socket");
  if (socket.empty()) return std::nullopt;
  ServedConnection served;
  const json& data = At(socket, "data");
  served.started = static_cast<uint64_t>(Number(data, "streamsStarted"));
  served.ended =
      static_cast<uint64_t>(Number(data, "streamsSucceeded") + Number(data, "streamsFailed"));
  served.port = static_cast<int>(Number(At(At(socket, "local"), "tcpip_address"), "port"));
  const std::string certificate = Text(At(At(socket, "security"), "tls"), "remote_certificate");
  if (!absl::Base64Unescape(certificate, &served.certificate)) served.certificate.clear();
  return served;
}

bool TransportStatistics::FindServer() {
  const json answer = Parse(grpc_channelz_get_servers(0));
  for (const json& server : At(answer, "server")) {
    const auto id = static_cast<intptr_t>(Number(At(server, "ref"), "serverId"));
    for (const Socket& socket : SocketsFrom(id, 0)) {
      const std::optional<ServedConnection> served = Read(socket.id);
      if (!served.has_value()) continue;
      if (served->port == port_) server_ = id;
      break;
    }
    if (server_.has_value()) return true;
  }
  return false;
}

std::vector<TransportStatistics::Socket> TransportStatistics::TakeNewSockets(MonotonicTime now) {
  std::vector<Socket> taken;
  if (!server_.has_value() && !FindServer()) return taken;
  for (intptr_t next = first_; taken.size() < kMaxNewSockets;) {
    const std::vector<Socket> sockets = SocketsFrom(*server_, next);
    for (const Socket& socket : sockets) {
      if (taken.size() < kMaxNewSockets && returned_.insert(socket.id).second)
        taken.push_back(socket);
    }
    if (static_cast<intptr_t>(sockets.size()) < kPageSockets) break;
    next = sockets.back().id + 1;
  }
  if (now >= advanced_at_ + kVisibleWithin) {
    advanced_at_ = now;
    first_ = next_first_;
    returned_.erase(returned_.begin(), returned_.lower_bound(first_));
    if (!returned_.empty()) next_first_ = *returned_.rbegin() + 1;
  }
  return taken;
}

}  // namespace pawl
