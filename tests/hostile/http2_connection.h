// An HTTP/2 client that keeps to no limits (RFC 9113, RFC 7541).
#ifndef PAWL_TESTS_HOSTILE_HTTP2_CONNECTION_H_
#define PAWL_TESTS_HOSTILE_HTTP2_CONNECTION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/hostile/raw_connection.h"

namespace pawl {

// Owns a connection. For one thread. Send functions return false once the connection has ended.
class Http2Connection {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  explicit Http2Connection(TlsClient::Connection connection);

  // Starts a stream with a gRPC request for `path`, without a message. `more` follows the headers
  // that gRPC needs; they may be of any size.
  bool StartCall(absl::string_view path, const Headers& more = {});
  // Resets the stream that was started last.
  bool ResetStream();
  // Sends as much of `count` bytes of a message as the peer's windows permit, on the stream;
  // returns how much. The first bytes must be the message's prefix.
  size_t SendSome(uint32_t stream, absl::string_view bytes);
  // Takes the peer's frames. Returns false once the connection has ended.
  bool TakeAnswers();

  uint32_t last_stream() const { return next_stream_ - 2; }
  bool is_open() const { return is_open_; }

 private:
  bool SendFrame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload);

  TlsClient::Connection connection_;
  bool is_open_ = true;
  uint32_t next_stream_ = 1;
  std::string received_;
  // The bytes that the peer accepts: on the connection, on each new stream, on each stream.
  int64_t window_ = 65535;
  int64_t initial_window_ = 65535;
  std::map<uint32_t, int64_t> stream_windows_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HOSTILE_HTTP2_CONNECTION_H_
