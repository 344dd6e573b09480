#include "client_lib/base/host_port.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {
namespace {

constexpr size_t kMaxPortDigits = 5;
constexpr uint32_t kMaxPort = 65535;
constexpr size_t kMaxShownBytes = 256;

}  // namespace

bool HostPort::IsWildcard() const {
  // Of an IPv6 address all zeros, however written.
  return host == "*" || host.find_first_not_of("0.") == std::string::npos ||
         (host.front() == '[' && host.find_first_not_of("[0:]") == std::string::npos);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  const absl::string_view host = text.substr(0, std::min(colon, text.size()));
  const absl::string_view digits = colon == absl::string_view::npos ? "" : text.substr(colon + 1);
  uint32_t port = 0;
  const bool is_number = !digits.empty() && digits.size() <= kMaxPortDigits &&
                         std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                         absl::SimpleAtoi(digits, &port);
  // Without brackets nobody can tell an IPv6 address from its port.
  const bool is_host =
      !host.empty() && !HasControlCharacters(host) && host.find(' ') == absl::string_view::npos &&
      (host.find(':') == absl::string_view::npos || (host.front() == '[' && host.back() == ']'));
  if (!is_number || !is_host || port > kMaxPort) {
    return absl::InvalidArgumentError(absl::StrCat("'", BoundedText(text, kMaxShownBytes),
                                                   "' is not host:port with a port from 0 to ",
                                                   kMaxPort));
  }
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

}  // namespace pawl
