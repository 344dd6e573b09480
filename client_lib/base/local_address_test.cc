#include "client_lib/base/local_address.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(LocalAddressTest, TheWayToThisMachineIsThisMachine) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7000"), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7000,127.0.0.1:7001"), "127.0.0.1");
}

TEST(LocalAddressTest, AddressesThatAreNoneAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(LocalAddressTowards("nowhere").status()));
  EXPECT_TRUE(
      absl::IsUnavailable(LocalAddressTowards("there.is.no.such.host.invalid:7000").status()));
}

}  // namespace
}  // namespace pawl
