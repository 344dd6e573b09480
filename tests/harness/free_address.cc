#include "tests/harness/free_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

constexpr int kFirstPort = 18000;
constexpr int kLastPort = 31999;
constexpr int kMaxAttempts = 100;

}  // namespace

absl::StatusOr<std::string> FreeAddress() {
  static std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<int> ports(kFirstPort, kLastPort);
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const int port = ports(random);
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free =
        bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(descriptor);
    if (free) return absl::StrCat("127.0.0.1:", port);
  }
  return absl::UnavailableError(
      absl::StrCat("no free port between ", kFirstPort, " and ", kLastPort));
}

}  // namespace pawl
