#include "worker/device/open_device.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(OpenDeviceTest, OpensTheCpu) {
  const auto device = OpenDevice("cpu");
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->SharesHostMemory());
}

TEST(OpenDeviceTest, SaysThatCudaIsNotBuiltIn) {
  EXPECT_EQ(OpenDevice("cuda:0").status().code(), absl::StatusCode::kUnimplemented);
}

TEST(OpenDeviceTest, RefusesUnknownNames) {
  EXPECT_EQ(OpenDevice("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDevice("tpu").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
