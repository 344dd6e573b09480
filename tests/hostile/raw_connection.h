// Connections that send any bytes, over TCP and over TLS.
#ifndef PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_
#define PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Owns a TCP socket. For one thread.
class RawConnection {
 public:
  // nullopt if the address, 127.0.0.1:PORT, does not accept a connection. `source`: the own
  // address, such as 127.0.3.7, so that the peer takes this process for another host; empty: any.
  static std::optional<RawConnection> Open(const std::string& address,
                                           const std::string& source = "");

  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;
  ~RawConnection();

  // Returns false once the peer has closed the connection.
  bool Send(absl::string_view bytes);
  // Waits up to 100 ms until the peer sends something or closes.
  void AwaitAnswer();
  // Sends no more, but could receive.
  void HalfClose();
  // Lets the end of the connection be a reset.
  void EndWithReset();

  int descriptor() const { return socket_; }

 private:
  explicit RawConnection(int socket) : socket_(socket) {}

  int socket_;
};

// Makes TLS connections with the certificate in a --tls_dir, or without one.
class TlsClient {
 public:
  // `tls_dir` empty: without a certificate. Aborts if the files cannot be read.
  explicit TlsClient(const std::string& tls_dir);

  // Owns a connection; its calls block for at most a second each. For one thread.
  class Connection {
   public:
    bool Send(absl::string_view bytes);
    // Returns what the peer has sent by now; nullopt once the connection has ended.
    std::optional<std::string> Receive();

   private:
    friend class TlsClient;
    struct Deleter {
      void operator()(SSL* ssl) const { SSL_free(ssl); }
    };
    Connection(RawConnection connection, SSL* ssl)
        : connection_(std::move(connection)), ssl_(ssl) {}

    RawConnection connection_;
    std::unique_ptr<SSL, Deleter> ssl_;
  };

  // nullopt unless the handshake ends well. With TLS 1.3 the server may refuse the certificate only
  // afterwards.
  std::optional<Connection> Connect(const std::string& address) const;

 private:
  struct Deleter {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  std::unique_ptr<SSL_CTX, Deleter> context_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_
