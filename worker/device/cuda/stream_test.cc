// Tests the operations on a GPU. Skipped without a GPU, and in builds without NVIDIA's toolkit.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/open_device.h"
#include "worker/device/testing/kernel_checks.h"
#include "worker/device/testing/stream_contract.h"

namespace pawl {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, StreamContractTest,
                         ::testing::Values(DeviceOpener([] { return OpenDevice("cuda:0"); })));

class CudaStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenDevice("cuda:0");
    if (!device.ok()) GTEST_SKIP() << "no GPU: " << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaStreamTest, OperationsMatchTheCpu) {
  constexpr size_t kLargest = 100000;
  constexpr uint32_t kSeed = 20240607;
  for (const KernelCheck& check : CheckKernels(*device_, kLargest, kSeed)) {
    EXPECT_TRUE(check.status.ok()) << check.operation << ": " << check.status;
    EXPECT_LE(check.worst, 1) << check.operation;
  }
}

TEST_F(CudaStreamTest, CopiesLargerThanTheStagingMemoryArrive) {
  constexpr size_t kCount = size_t{300} << 18;
  std::vector<float> there(kCount), back(kCount);
  for (size_t i = 0; i < kCount; ++i) there[i] = static_cast<float>(i % 1000003);
  auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto memory = device_->Allocate(kCount * sizeof(float));
  ASSERT_TRUE(memory.ok()) << memory.status();
  (*stream)->CopyToDevice(there.data(), kCount * sizeof(float), *memory);
  (*stream)->CopyToHost(*memory, kCount * sizeof(float), back.data());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_TRUE(there == back);
  device_->Free(*memory);
}

TEST_F(CudaStreamTest, DeviceContinuesAfterOutOfMemory) {
  EXPECT_EQ(device_->Allocate(size_t{1} << 45).status().code(),
            absl::StatusCode::kResourceExhausted);
  const auto memory = device_->Allocate(1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  device_->Free(*memory);
}

TEST_F(CudaStreamTest, StreamRunsAfterTheStreamItWaitsFor) {
  auto first = device_->CreateStream(), second = device_->CreateStream();
  ASSERT_TRUE(first.ok() && second.ok());
  constexpr size_t kCount = 1 << 20;
  const auto memory = device_->Allocate(kCount * sizeof(float));
  ASSERT_TRUE(memory.ok());
  float* const x = static_cast<float*>(*memory);
  float last = 0;
  (*first)->Zero(x, kCount * sizeof(float));
  for (int turn = 0; turn < 100; ++turn) {
    (*first)->AddConstant(kCount, 1, x);
    (*second)->WaitFor(**first);
    (*second)->Scale(kCount, 0.5f, x);
    (*first)->WaitFor(**second);
  }
  (*first)->CopyToHost(x + kCount - 1, sizeof(float), &last);
  const Stream::Mark mark = (*first)->PlaceMark();
  (*first)->AddConstant(kCount, 1, x);
  ASSERT_TRUE((*first)->Await(mark).ok());
  EXPECT_FLOAT_EQ(last, 1);
  ASSERT_TRUE((*first)->Synchronize().ok());
  ASSERT_TRUE((*second)->Synchronize().ok());
  device_->Free(*memory);
}

}  // namespace
}  // namespace pawl
