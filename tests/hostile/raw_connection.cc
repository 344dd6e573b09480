#include "tests/hostile/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "client_lib/base/host_port.h"

namespace pawl {
namespace {

constexpr int kAnswerMs = 100;
constexpr int kConnectMs = 1000;

}  // namespace

std::optional<RawConnection> RawConnection::Open(const std::string& address) {
  const auto at = ParseHostPort(address);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::nullopt;
  RawConnection connection(descriptor);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(at->port);
  inet_pton(AF_INET, at->host.c_str(), &to.sin_addr);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
    pollfd ready = {descriptor, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof(error);
    if (poll(&ready, 1, kConnectMs) != 1 ||
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
      return std::nullopt;
    }
  }
  return connection;
}

RawConnection::RawConnection(RawConnection&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)) {}

RawConnection::~RawConnection() {
  if (socket_ >= 0) close(socket_);
}

bool RawConnection::Send(absl::string_view bytes) {
  return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0;
}

void RawConnection::AwaitAnswer() {
  pollfd ready = {socket_, POLLIN, 0};
  if (poll(&ready, 1, kAnswerMs) != 1) return;
  std::array<char, 4096> answer;
  if (recv(socket_, answer.data(), answer.size(), 0) < 0) return;
}

}  // namespace pawl
