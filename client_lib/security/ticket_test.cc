#include "client_lib/security/ticket.h"

#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(TicketTest, TicketIsOfOneSenderAndIncarnation) {
  const std::string key = NewTicketKey();
  const std::string ticket = MakeTicket(key, TicketSender::kRank, 3, 17);
  EXPECT_EQ(ticket.size(), kTicketBytes);
  EXPECT_TRUE(IsTicketOf(key, TicketSender::kRank, 3, 17, ticket));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kRank, 3, 18, ticket));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kRank, 4, 17, ticket));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kClient, 3, 17, ticket));
  EXPECT_FALSE(IsTicketOf(NewTicketKey(), TicketSender::kRank, 3, 17, ticket));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kRank, 3, 17, ""));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kRank, 3, 17, ticket + "x"));
}

TEST(TicketTest, NodeTicketIsOfOneNodeAndIncarnation) {
  const std::string key = NewTicketKey();
  const std::string ticket = MakeNodeTicket(key, "worker-3", 17);
  EXPECT_TRUE(IsNodeTicketOf(key, "worker-3", 17, ticket));
  EXPECT_FALSE(IsNodeTicketOf(key, "worker-3", 18, ticket));
  EXPECT_FALSE(IsNodeTicketOf(key, "worker-4", 17, ticket));
  EXPECT_FALSE(IsNodeTicketOf(key, "server-3", 17, ticket));
  EXPECT_FALSE(IsNodeTicketOf(key, "", 17, MakeNodeTicket(key, "", 17)));
  EXPECT_FALSE(IsTicketOf(key, TicketSender::kRank, 3, 17, ticket));
}

TEST(TicketTest, TicketsDoNotChangeBetweenVersions) {
  // HMAC-SHA256 by Python: hmac.new(b"k" * 32, bytes([1, 3, 0, 0, 0, 17]) + bytes(7), "sha256").
  const std::string ticket =
      MakeTicket(std::string(kTicketKeyBytes, 'k'), TicketSender::kRank, 3, 17);
  std::string hex;
  for (const char c : ticket) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  EXPECT_EQ(hex, "7420c3ca5cd7fa203e20935ed78b06e6");
}

}  // namespace
}  // namespace pawl
