#include "client_lib/base/host_port.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(HostPortTest, PortsFrom0To65535AreAccepted) {
  for (const char* text : {"127.0.0.1:0", "localhost:65535", "[::1]:7000", "h-1.example:07000"}) {
    EXPECT_TRUE(ParseHostPort(text).ok()) << text;
  }
  EXPECT_EQ(ParseHostPort("[::1]:7000")->host, "[::1]");
  EXPECT_EQ(ParseHostPort("[::1]:7000")->port, 7000);
}

TEST(HostPortTest, MalformedAddressesAreRefused) {
  for (const char* text :
       {"", ":", "localhost", "localhost:", ":80", "127.0.0.1:65536", "127.0.0.1:99999", "h:-1",
        "h:+1", "h: 1", "h:1x", "h:000001", "::1:80", "a b:1", "a\nb:1", "\x1b[2J:1"}) {
    const auto parsed = ParseHostPort(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HostPortTest, WildcardAddressesAreRecognised) {
  for (const char* text : {"0.0.0.0:1", "[::]:1", "0:1", "*:1", "[0:0:0:0:0:0:0:0]:1"}) {
    EXPECT_TRUE(ParseHostPort(text)->IsWildcard()) << text;
  }
  for (const char* text : {"127.0.0.1:1", "10.0.0.0:1", "[::1]:1", "localhost:1"}) {
    EXPECT_FALSE(ParseHostPort(text)->IsWildcard()) << text;
  }
}

TEST(HostPortTest, LoopbackAddressesAreRecognised) {
  for (const char* host : {"localhost", "127.0.0.1", "127.255.0.9", "[::1]"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "10.0.0.1", "128.0.0.1", "127.0.0.1.example", "[::]", "h",
                           "localhost.example"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(HostPortTest, SeveralAddressesAreOfOneFamily) {
  EXPECT_EQ(ParseHostPorts("scheduler.example:7000")->size(), 1u);
  const auto two = ParseHostPorts("10.0.0.1:7000,10.0.0.2:7001");
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ((*two)[1].host, "10.0.0.2");
  EXPECT_EQ((*two)[1].port, 7001);
  EXPECT_EQ(ParseHostPorts("[::1]:1,[fd00::2]:2")->size(), 2u);
  for (const char* list : {"a:1,b:2", "10.0.0.1:1,b:2", "b:2,10.0.0.1:1", "10.0.0.1:1,[::1]:2",
                           "localhost:1,127.0.0.1:1", "[::1:2]:1,[x]:2"}) {
    const auto parsed = ParseHostPorts(list);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << list;
    EXPECT_NE(parsed.status().message().find("must be an IP address"), std::string::npos) << list;
  }
  for (const char* list : {"", ",", "10.0.0.1:1,", "10.0.0.1:1,10.0.0.2"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHostPorts(list).status())) << list;
}

TEST(LocalAddressTest, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7000"), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7000,127.0.0.1:7001"), "127.0.0.1");
}

TEST(LocalAddressTest, UnusableAddressesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(LocalAddressTowards("nowhere").status()));
  EXPECT_TRUE(
      absl::IsUnavailable(LocalAddressTowards("there.is.no.such.host.invalid:7000").status()));
}

}  // namespace
}  // namespace pawl
