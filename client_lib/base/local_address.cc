#include "client_lib/base/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/host_port.h"

namespace pawl {
namespace {

// Empty without a way there.
std::string AddressTowards(const addrinfo& destination) {
  const int descriptor = socket(destination.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return "";
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST] = "";
  // Of a datagram socket: the system only looks for the way.
  if (connect(descriptor, destination.ai_addr, destination.ai_addrlen) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    text[0] = '\0';
  }
  close(descriptor);
  return text;
}

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& addresses) {
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(addresses, ','))) {
    const absl::StatusOr<HostPort> where = ParseHostPort(address);
    if (!where.ok()) return where.status();
    // The brackets of an IPv6 address are no part of it.
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
  return absl::UnavailableError(absl::StrCat("there is no way from here to ", addresses));
}

}  // namespace pawl
