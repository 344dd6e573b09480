#include "tests/hostile/http2_connection.h"

#include <algorithm>

namespace pawl {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
constexpr size_t kMaxFrameBytes = 16384;
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kResetStream = 3;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kWindowUpdate = 8;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kAcknowledge = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint16_t kInitialWindowSetting = 4;
constexpr uint32_t kCancel = 8;

void AppendUint(std::string& text, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text.push_back(static_cast<char>(value >> shift));
}

uint32_t Uint(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// RFC 7541, sections 5.1 and 5.2: a string without Huffman code.
void AppendString(std::string& block, absl::string_view text) {
  size_t length = text.size();
  if (length < 127) {
    block.push_back(static_cast<char>(length));
  } else {
    block.push_back(127);
    for (length -= 127; length >= 128; length >>= 7)
      block.push_back(static_cast<char>(length % 128 + 128));
    block.push_back(static_cast<char>(length));
  }
  block.append(text.data(), text.size());
}

// RFC 7541, section 6.2.2: a literal without indexing.
std::string Encode(const Http2Connection::Headers& headers) {
  std::string block;
  for (const auto& [name, value] : headers) {
    block.push_back(0);
    AppendString(block, name);
    AppendString(block, value);
  }
  return block;
}

}  // namespace

Http2Connection::Http2Connection(TlsClient::Connection connection)
    : connection_(std::move(connection)) {
  is_open_ = connection_.Send(kPreface);
  SendFrame(kSettings, 0, 0, "");
}

bool Http2Connection::SendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                                absl::string_view payload) {
  std::string frame;
  AppendUint(frame, payload.size(), 3);
  AppendUint(frame, type, 1);
  AppendUint(frame, flags, 1);
  AppendUint(frame, stream, 4);
  frame.append(payload.data(), payload.size());
  is_open_ = is_open_ && connection_.Send(frame);
  return is_open_;
}

bool Http2Connection::StartCall(absl::string_view path, const Headers& more) {
  Headers headers = {{":method", "POST"},          {":scheme", "https"},
                     {":path", std::string(path)}, {":authority", "pawl"},
                     {"te", "trailers"},           {"content-type", "application/grpc"}};
  headers.insert(headers.end(), more.begin(), more.end());
  const std::string block = Encode(headers);
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  stream_windows_[stream] = initial_window_;
  for (size_t begin = 0; begin < block.size(); begin += kMaxFrameBytes) {
    const bool is_last = begin + kMaxFrameBytes >= block.size();
    if (!SendFrame(begin == 0 ? kHeaders : kContinuation, is_last ? kEndHeaders : 0, stream,
                   absl::string_view(block).substr(begin, kMaxFrameBytes))) {
      return false;
    }
  }
  return true;
}

bool Http2Connection::ResetStream() {
  std::string code;
  AppendUint(code, kCancel, 4);
  stream_windows_.erase(last_stream());
  return SendFrame(kResetStream, 0, last_stream(), code);
}

size_t Http2Connection::SendSome(uint32_t stream, absl::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const int64_t room = std::min<int64_t>({window_, stream_windows_[stream], kMaxFrameBytes,
                                            static_cast<int64_t>(bytes.size() - sent)});
    if (room <= 0 || !SendFrame(kData, 0, stream, bytes.substr(sent, static_cast<size_t>(room))))
      break;
    window_ -= room;
    stream_windows_[stream] -= room;
    sent += static_cast<size_t>(room);
  }
  return sent;
}

bool Http2Connection::TakeAnswers() {
  const std::optional<std::string> more = connection_.Receive();
  if (!more.has_value()) is_open_ = false;
  if (!is_open_) return false;
  received_ += *more;
  absl::string_view rest = received_;
  while (rest.size() >= kFrameHeaderBytes) {
    const size_t length = Uint(rest.substr(0, 3));
    if (rest.size() < kFrameHeaderBytes + length) break;
    const auto type = static_cast<uint8_t>(rest[3]);
    const bool is_acknowledgement = (rest[4] & kAcknowledge) != 0;
    const uint32_t stream = Uint(rest.substr(5, 4));
    const absl::string_view payload = rest.substr(kFrameHeaderBytes, length);
    if (type == kWindowUpdate && stream == 0) window_ += Uint(payload);
    if (type == kWindowUpdate && stream_windows_.count(stream) > 0)
      stream_windows_[stream] += Uint(payload);
    if (type == kPing && !is_acknowledgement) SendFrame(kPing, kAcknowledge, 0, payload);
    if (type == kSettings && !is_acknowledgement) {
      for (size_t i = 0; i + 6 <= payload.size(); i += 6) {
        if (Uint(payload.substr(i, 2)) != kInitialWindowSetting) continue;
        const int64_t window = Uint(payload.substr(i + 2, 4));
        for (auto& [of_stream, size] : stream_windows_) size += window - initial_window_;
        initial_window_ = window;
      }
      SendFrame(kSettings, kAcknowledge, 0, "");
    }
    rest.remove_prefix(kFrameHeaderBytes + length);
  }
  received_ = std::string(rest);
  return is_open_;
}

}  // namespace pawl
