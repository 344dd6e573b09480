#include "client_lib/security/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace pawl {
namespace {

constexpr size_t kMessageBytes = 1 + sizeof(uint32_t) + sizeof(uint64_t);

struct NamedNode {
  TicketSender kind;
  uint32_t number = 0;
};

std::optional<NamedNode> ParseNode(absl::string_view node) {
  NamedNode parsed;
  if (absl::ConsumePrefix(&node, "server-")) {
    parsed.kind = TicketSender::kServerNode;
  } else if (absl::ConsumePrefix(&node, "worker-")) {
    parsed.kind = TicketSender::kWorkerNode;
  } else if (absl::ConsumePrefix(&node, "client-")) {
    parsed.kind = TicketSender::kClientNode;
  } else {
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(node, &parsed.number)) return std::nullopt;
  return parsed;
}

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

std::string MakeNodeTicket(absl::string_view key, absl::string_view node, uint64_t incarnation) {
  const std::optional<NamedNode> parsed = ParseNode(node);
  if (!parsed.has_value()) return "";
  return MakeTicket(key, parsed->kind, parsed->number, incarnation);
}

bool IsNodeTicketOf(absl::string_view key, absl::string_view node, uint64_t incarnation,
                    absl::string_view ticket) {
  const std::optional<NamedNode> parsed = ParseNode(node);
  return parsed.has_value() && IsTicketOf(key, parsed->kind, parsed->number, incarnation, ticket);
}

}  // namespace pawl
