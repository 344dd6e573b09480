#include "client_lib/security/admission/remote_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(RemoteAddressTest, SocketAndPeerNameGiveTheSameAddress) {
  sockaddr_storage socket = {};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(socket);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(4711);
  inet_pton(AF_INET, "10.0.0.2", &ipv4.sin_addr);
  const RemoteAddress of_socket = RemoteAddressOf(socket);
  const RemoteAddress of_peer = RemoteAddressOfPeer("ipv4:10.0.0.2:4711");
  EXPECT_EQ(of_socket.connection, "10.0.0.2:4711");
  EXPECT_EQ(of_socket.host, "10.0.0.2");
  EXPECT_EQ(of_peer.connection, of_socket.connection);
  EXPECT_EQ(of_peer.host, of_socket.host);
}

TEST(RemoteAddressTest, Ipv6AddressesOfOneNetworkAreOneHost) {
  const RemoteAddress one = RemoteAddressOfPeer("ipv6:%5Bfd00:1:2:3::7%5D:80");
  const RemoteAddress other = RemoteAddressOfPeer("ipv6:[fd00:1:2:3:4::8]:81");
  EXPECT_EQ(one.connection, "[fd00:1:2:3::7]:80");
  EXPECT_EQ(other.connection, "[fd00:1:2:3:4::8]:81");
  EXPECT_EQ(one.host, "fd00:1:2:3::");
  EXPECT_EQ(other.host, one.host);
  EXPECT_NE(RemoteAddressOfPeer("ipv6:[fd00:1:2:4::7]:80").host, one.host);
}

TEST(RemoteAddressTest, Ipv4InIpv6IsIpv4) {
  sockaddr_storage socket = {};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(socket);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(4711);
  inet_pton(AF_INET6, "::ffff:10.0.0.2", &ipv6.sin6_addr);
  EXPECT_EQ(RemoteAddressOf(socket).connection, "10.0.0.2:4711");
  EXPECT_EQ(RemoteAddressOf(socket).host, "10.0.0.2");
}

TEST(RemoteAddressTest, LinkLocalAddressesHaveAnInterface) {
  EXPECT_EQ(RemoteAddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:80").connection, "[fe80::1]:80");
}

TEST(RemoteAddressTest, OtherNamesAreEmpty) {
  for (const char* const peer : {"", "unix:/tmp/x", "ipv4:10.0.0.2", "ipv4:x:1", "ipv6:[x]:1"}) {
    EXPECT_EQ(RemoteAddressOfPeer(peer).connection, "") << peer;
    EXPECT_EQ(RemoteAddressOfPeer(peer).host, "") << peer;
  }
}

}  // namespace
}  // namespace pawl
