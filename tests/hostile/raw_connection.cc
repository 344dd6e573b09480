#include "tests/hostile/raw_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "client_lib/base/host_port.h"

namespace pawl {
namespace {

constexpr int kAnswerMs = 100;
constexpr int kConnectMs = 1000;
constexpr time_t kTlsTimeoutSeconds = 1;
// The protocol that gRPC requires (RFC 7301).
constexpr unsigned char kAlpn[] = {2, 'h', '2'};

}  // namespace

std::optional<RawConnection> RawConnection::Open(const std::string& address,
                                                 const std::string& source) {
  const auto at = ParseHostPort(address);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::nullopt;
  RawConnection connection(descriptor);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  if (!source.empty()) {
    inet_pton(AF_INET, source.c_str(), &to.sin_addr);
    if (bind(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0)
      return std::nullopt;
  }
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

void RawConnection::HalfClose() { shutdown(socket_, SHUT_WR); }

void RawConnection::EndWithReset() {
  const linger now = {1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

TlsClient::TlsClient(const std::string& tls_dir) : context_(SSL_CTX_new(TLS_client_method())) {
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_alpn_protos(context_.get(), kAlpn, sizeof(kAlpn));
  if (tls_dir.empty()) return;
  if (SSL_CTX_use_certificate_chain_file(context_.get(), (tls_dir + "/cert.pem").c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context_.get(), (tls_dir + "/key.pem").c_str(),
                                  SSL_FILETYPE_PEM) != 1) {
    std::abort();
  }
}

std::optional<TlsClient::Connection> TlsClient::Connect(const std::string& address) const {
  std::optional<RawConnection> connection = RawConnection::Open(address);
  if (!connection.has_value()) return std::nullopt;
  const int descriptor = connection->descriptor();
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  const timeval limit = {kTlsTimeoutSeconds, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  Connection result(*std::move(connection), SSL_new(context_.get()));
  SSL_set_fd(result.ssl_.get(), descriptor);
  if (SSL_connect(result.ssl_.get()) != 1) return std::nullopt;
  return result;
}

bool TlsClient::Connection::Send(absl::string_view bytes) {
  return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
}

std::optional<std::string> TlsClient::Connection::Receive() {
  std::string all;
  std::array<char, 16384> part;
  pollfd ready = {connection_.descriptor(), POLLIN, 0};
  while (SSL_pending(ssl_.get()) > 0 || poll(&ready, 1, 0) == 1) {
    const int count = SSL_read(ssl_.get(), part.data(), static_cast<int>(part.size()));
    if (count <= 0) return std::nullopt;
    all.append(part.data(), static_cast<size_t>(count));
  }
  return all;
}

}  // namespace pawl
