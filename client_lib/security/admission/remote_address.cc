#include "client_lib/security/admission/remote_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace pawl {
namespace {

constexpr size_t kIpv4PrefixBytes = 12;
constexpr size_t kHostBytes = 8;

std::string Text(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  return text;
}

RemoteAddress OfIpv4(const in_addr& address, uint16_t port) {
  const std::string host = Text(AF_INET, &address);
  return {absl::StrCat(host, ":", port), host};
}

RemoteAddress OfIpv6(in6_addr address, uint16_t port) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    in_addr ipv4;
    std::memcpy(&ipv4, address.s6_addr + kIpv4PrefixBytes, sizeof(ipv4));
    return OfIpv4(ipv4, port);
  }
  RemoteAddress result;
  result.connection = absl::StrCat("[", Text(AF_INET6, &address), "]:", port);
  std::memset(address.s6_addr + kHostBytes, 0, sizeof(address.s6_addr) - kHostBytes);
  result.host = Text(AF_INET6, &address);
  return result;
}

}  // namespace

RemoteAddress RemoteAddressOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return OfIpv4(ipv4.sin_addr, ntohs(ipv4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
    return OfIpv6(ipv6.sin6_addr, ntohs(ipv6.sin6_port));
  }
  return {};
}

RemoteAddress RemoteAddressOfPeer(absl::string_view peer) {
  const bool is_ipv4 = absl::ConsumePrefix(&peer, "ipv4:");
  if (!is_ipv4 && !absl::ConsumePrefix(&peer, "ipv6:")) return {};
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port)) return {};
  std::string host = text.substr(0, colon);
  if (is_ipv4) {
    in_addr address;
    if (inet_pton(AF_INET, host.c_str(), &address) != 1) return {};
    return OfIpv4(address, static_cast<uint16_t>(port));
  }
  host = std::string(absl::StripPrefix(absl::StripSuffix(host, "]"), "["));
  // The interface of a link-local address.
  host = host.substr(0, host.find('%'));
  in6_addr address;
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return {};
  return OfIpv6(address, static_cast<uint16_t>(port));
}

}  // namespace pawl
