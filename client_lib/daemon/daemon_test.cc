#include "client_lib/daemon/daemon.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(CheckAddressFlagsTest, WildcardListenAddressNeedsAdvertise) {
  EXPECT_TRUE(CheckAddressFlags("127.0.0.1:0", "", true).ok());
  EXPECT_TRUE(CheckAddressFlags("0.0.0.0:0", "", false).ok());
  EXPECT_TRUE(CheckAddressFlags("0.0.0.0:0", "10.0.0.2:7000", true).ok());
  const absl::Status wildcard = CheckAddressFlags("0.0.0.0:0", "", true);
  EXPECT_EQ(wildcard.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(wildcard.message().find("--advertise=HOST:PORT"), absl::string_view::npos) << wildcard;
  for (const char* advertise : {"10.0.0.2", "10.0.0.2:0", "0.0.0.0:7000", "10.0.0.2:99999"}) {
    EXPECT_FALSE(CheckAddressFlags("0.0.0.0:0", advertise, true).ok()) << advertise;
  }
}

TEST(CheckAddressFlagsTest, InvalidPortsAreRefused) {
  for (const char* listen : {"127.0.0.1:99999", "localhost:", "localhost", ":80", "127.0.0.1:-1"}) {
    const absl::Status status = CheckAddressFlags(listen, "", true);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_NE(status.message().find("--listen"), absl::string_view::npos) << status;
  }
}

TEST(CheckSchedulerAddressTest, EveryAddressIsChecked) {
  EXPECT_TRUE(CheckSchedulerAddress("10.0.0.1:7000").ok());
  EXPECT_TRUE(CheckSchedulerAddress("10.0.0.1:7000,10.0.0.2:7000").ok());
  for (const char* address :
       {"", "10.0.0.1", "10.0.0.1:70000", "10.0.0.1:7000,", "10.0.0.1:7000,10.0.0.2:0"}) {
    EXPECT_EQ(CheckSchedulerAddress(address).code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace pawl
