#include "worker/device/testing/remote_memory_device.h"

#include <cmath>
#include <memory>

#include "gtest/gtest.h"
#include "worker/device/testing/stream_contract.h"

namespace pawl {
namespace {

using Reads = RemoteMemoryDevice::Reads;

INSTANTIATE_TEST_SUITE_P(
    RemoteMemory, StreamContractTest,
    ::testing::Values(
        DeviceOpener([] { return std::make_unique<RemoteMemoryDevice>(Reads::kLate); }),
        DeviceOpener([] { return std::make_unique<RemoteMemoryDevice>(Reads::kInTheCall); })));

class RemoteMemoryDeviceTest : public ::testing::TestWithParam<Reads> {
 protected:
  void SetUp() override { x_ = static_cast<float*>(device_.Allocate(4 * sizeof(float)).value()); }
  void TearDown() override { device_.Free(x_); }

  RemoteMemoryDevice device_{GetParam()};
  std::unique_ptr<Stream> stream_ = device_.CreateStream().value();
  float* x_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(All, RemoteMemoryDeviceTest,
                         ::testing::Values(Reads::kLate, Reads::kInTheCall));

TEST_P(RemoteMemoryDeviceTest, NothingIsDoneBeforeItIsAwaited) {
  float there = 1, back = 0;
  stream_->CopyToDevice(&there, sizeof(float), x_);
  stream_->CopyToHost(x_, sizeof(float), &back);
  const Stream::Mark mark = stream_->PlaceMark();
  stream_->CopyToHost(x_, sizeof(float), &there);
  there = 2;
  EXPECT_EQ(back, 0);
  ASSERT_TRUE(stream_->Await(mark).ok());
  EXPECT_EQ(back, GetParam() == Reads::kLate ? 2 : 1);
}

TEST_P(RemoteMemoryDeviceTest, UnrequestedOrderIsNotKept) {
  const auto other = device_.CreateStream().value();
  float result = 0;
  other->Zero(x_, sizeof(float));
  stream_->CopyToHost(x_, sizeof(float), &result);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(std::isnan(result));
  stream_->WaitFor(*other);
  stream_->CopyToHost(x_, sizeof(float), &result);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(result, 0);
}

using RemoteMemoryDeviceDeathTest = RemoteMemoryDeviceTest;
INSTANTIATE_TEST_SUITE_P(All, RemoteMemoryDeviceDeathTest, ::testing::Values(Reads::kLate));

TEST_P(RemoteMemoryDeviceDeathTest, MixedUpMemoryCrashes) {
  float host[4] = {};
  EXPECT_DEATH(*x_ = 1, "");
  EXPECT_DEATH(
      {
        stream_->AddConstant(4, 1, host);
        static_cast<void>(stream_->Synchronize());
      },
      "not the device's memory");
  EXPECT_DEATH(
      {
        stream_->AddConstant(5, 1, x_);
        static_cast<void>(stream_->Synchronize());
      },
      "20 bytes that are not the device's memory");
  EXPECT_DEATH(stream_->CopyToDevice(x_, 4, x_), "passed as host memory");
  EXPECT_DEATH(stream_->CopyToHost(x_, 4, x_), "passed as host memory");
}

}  // namespace
}  // namespace pawl
