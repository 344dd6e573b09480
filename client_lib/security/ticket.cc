#include "client_lib/security/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstdlib>

namespace pawl {
namespace {

constexpr size_t kMessageBytes = 1 + sizeof(uint32_t) + sizeof(uint64_t);

}  // namespace

std::string NewTicketKey() {
  std::string key(kTicketKeyBytes, '\0');
  // Fails only without any source of randomness.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(key.data()), static_cast<int>(key.size())) != 1)
    std::abort();
  return key;
}

std::string MakeTicket(absl::string_view key, TicketSender sender, uint32_t number,
                       uint64_t incarnation) {
  std::array<unsigned char, kMessageBytes> message = {static_cast<unsigned char>(sender)};
  for (size_t i = 0; i < sizeof(number); ++i)
    message[1 + i] = static_cast<unsigned char>(number >> (8 * i));
  for (size_t i = 0; i < sizeof(incarnation); ++i) {
    message[1 + sizeof(number) + i] = static_cast<unsigned char>(incarnation >> (8 * i));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), message.data(), message.size(),
           digest.data(), &size) == nullptr) {
    std::abort();
  }
  return std::string(reinterpret_cast<const char*>(digest.data()), kTicketBytes);
}

bool IsTicketOf(absl::string_view key, TicketSender sender, uint32_t number, uint64_t incarnation,
                absl::string_view ticket) {
  if (ticket.size() != kTicketBytes) return false;
  const std::string expected = MakeTicket(key, sender, number, incarnation);
  return CRYPTO_memcmp(expected.data(), ticket.data(), kTicketBytes) == 0;
}

}  // namespace pawl
