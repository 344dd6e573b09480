// A TCP connection that sends any bytes.
#ifndef PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_
#define PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pawl {

// Owns a socket. For one thread.
class RawConnection {
 public:
  // nullopt if the address, 127.0.0.1:PORT, does not accept a connection.
  static std::optional<RawConnection> Open(const std::string& address);

  RawConnection(RawConnection&& other) noexcept;
  RawConnection& operator=(RawConnection&&) = delete;
  ~RawConnection();

  // Returns false once the peer has closed the connection.
  bool Send(absl::string_view bytes);
  // Waits up to 100 ms until the peer sends something or closes.
  void AwaitAnswer();

 private:
  explicit RawConnection(int socket) : socket_(socket) {}

  int socket_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HOSTILE_RAW_CONNECTION_H_
