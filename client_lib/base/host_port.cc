#include "client_lib/base/host_port.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/bounded_text.h"

namespace pawl {
namespace {

constexpr size_t kMaxPortDigits = 5;
constexpr uint32_t kMaxPort = 65535;
constexpr size_t kMaxShownBytes = 256;

// Returns "" without a route.
std::string AddressTowards(const addrinfo& destination) {
  const int descriptor = socket(destination.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return "";
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST] = "";
  // Connecting a datagram socket sends nothing; it only selects a route.
  if (connect(descriptor, destination.ai_addr, destination.ai_addrlen) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    text[0] = '\0';
  }
  close(descriptor);
  return text;
}

// AF_UNSPEC for a name.
int FamilyOf(const std::string& host) {
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return AF_INET;
  in6_addr ipv6 = {};
  const bool bracketed = host.size() > 2 && host.front() == '[';
  if (bracketed && inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &ipv6) == 1)
    return AF_INET6;
  return AF_UNSPEC;
}

}  // namespace

bool HostPort::IsWildcard() const {
  // All spellings of the zero address.
  return host == "*" || host.find_first_not_of("0.") == std::string::npos ||
         (host.front() == '[' && host.find_first_not_of("[0:]") == std::string::npos);
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "[::1]" || host == "::1") return true;
  in_addr address = {};
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  const absl::string_view host = text.substr(0, std::min(colon, text.size()));
  const absl::string_view digits = colon == absl::string_view::npos ? "" : text.substr(colon + 1);
  uint32_t port = 0;
  const bool is_number = !digits.empty() && digits.size() <= kMaxPortDigits &&
                         std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                         absl::SimpleAtoi(digits, &port);
  // Without brackets an IPv6 address cannot be told from its port.
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

absl::StatusOr<std::vector<HostPort>> ParseHostPorts(absl::string_view addresses) {
  std::vector<HostPort> all;
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    absl::StatusOr<HostPort> parsed = ParseHostPort(address);
    if (!parsed.ok()) return parsed.status();
    all.push_back(*std::move(parsed));
  }
  if (all.size() == 1) return all;
  for (const HostPort& one : all) {
    if (FamilyOf(one.host) != AF_UNSPEC && FamilyOf(one.host) == FamilyOf(all.front().host))
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "of several addresses each must be an IP address, all of them IPv4 or all IPv6; '",
        BoundedText(one.host, kMaxShownBytes), "' in '", BoundedText(addresses, kMaxShownBytes),
        "' is not; use addresses, or one name that stands for all of them"));
  }
  return all;
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& addresses) {
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(addresses, ','))) {
    const absl::StatusOr<HostPort> where = ParseHostPort(address);
    if (!where.ok()) return where.status();
    // getaddrinfo takes an IPv6 address without its brackets.
    const bool bracketed = where->host.front() == '[';
    const std::string host =
        bracketed ? where->host.substr(1, where->host.size() - 2) : where->host;
    addrinfo hints = {};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), absl::StrCat(where->port).c_str(), &hints, &found) != 0) continue;
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> destinations(found, &freeaddrinfo);
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      if (std::string own = AddressTowards(*each); !own.empty()) return own;
    }
  }
  return absl::UnavailableError(absl::StrCat("no route from this machine to ", addresses));
}

}  // namespace pawl
