// Tests a staging collective on a failing GPU, using the emulator.
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/gloo/collective.h"
#include "worker/collective/staged_collective.h"
#include "worker/collective/testing/members_in_threads.h"
#include "worker/device/cuda/device.h"
#include "worker/device/cuda/emulator/runtime.h"

// MemoryOfAHangingDeviceIsNotFreed leaves memory allocated. The operations run on another thread,
// so the traces do not have the test's name.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:pawl::CudaStream::Create\nleak:pawl::CudaStream::CopyToDevice\n"
         "leak:StagedCollectiveFaultTest_MemoryOfAHangingDeviceIsNotFreed_Test\n";
}

namespace pawl {
namespace {

namespace emulator = cuda::emulator;

// A group of one on a GPU.
std::unique_ptr<StagedCollective> Connected(CudaDevice& device) {
  auto made = StagedCollective::Create(*GlooCollective::Create({}), device, {});
  EXPECT_TRUE(made.ok()) << made.status();
  const absl::Status status =
      Wait([&](Collective::Done done) { (*made)->Connect({""}, kTestTimeout, std::move(done)); });
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(made);
}

absl::Status Sum(Collective& collective) {
  std::vector<float> values(10, 1);
  return Wait([&](Collective::Done done) {
    collective.AllReduce(values.data(), values.data(), values.size(), CollectiveType::kFloat32,
                         Reduction::kSum, kTestTimeout, std::move(done));
  });
}

TEST(StagedCollectiveFaultTest, FailedCopyEndsTheGroup) {
  const auto device = *CudaDevice::Open({});
  {
    const auto collective = Connected(*device);
    EXPECT_TRUE(Sum(*collective).ok());
    EXPECT_EQ(emulator::AllocatedBytes(), 4 * kStagedPieceBytes);
    emulator::FailNext("cudaMemcpyAsync", cudaErrorLaunchFailure);
    const absl::Status status = Sum(*collective);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(collective->status(), status);
    EXPECT_EQ(Sum(*collective), status) << "the error stays";
  }
  // The next call on the device releases the freed memory.
  device->Free(*device->Allocate(1));
  device->Free(*device->Allocate(1));
  EXPECT_LT(emulator::AllocatedBytes(), kStagedPieceBytes);
}

TEST(StagedCollectiveFaultTest, MemoryOfAHangingDeviceIsNotFreed) {
  CudaDevice::Options options;
  options.hang_limit = std::chrono::milliseconds(20);
  const auto device = *CudaDevice::Open(options);
  const size_t before = emulator::AllocatedBytes();
  {
    const auto collective = Connected(*device);
    emulator::Hang(true);
    EXPECT_TRUE(absl::IsDeadlineExceeded(Sum(*collective)));
  }
  emulator::Hang(false);
  device->Free(*device->Allocate(1));
  device->Free(*device->Allocate(1));
  EXPECT_GE(emulator::AllocatedBytes(), before + 4 * kStagedPieceBytes);
}

}  // namespace
}  // namespace pawl
