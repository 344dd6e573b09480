#include "worker/dense/dense_memory.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {
namespace {

// A device with memory for a few allocations, whose streams fail on request.
class SmallDevice final : public Device {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    if (pieces == 3) return absl::ResourceExhaustedError("no more memory");
    ++pieces;
    return inner_.Allocate(bytes);
  }
  void Free(void* data) override {
    --pieces;
    inner_.Free(data);
  }
  bool SharesHostMemory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { return inner_.CreateStream(); }

  size_t pieces = 0;

 private:
  RemoteMemoryDevice inner_{RemoteMemoryDevice::Reads::kLate};
};

TEST(DenseMemoryTest, MemoryIsZeroedAndKeepsCopies) {
  RemoteMemoryDevice device(RemoteMemoryDevice::Reads::kLate);
  for (const bool of_host : {true, false}) {
    const auto memory = of_host ? DenseMemory::CreateOnHost() : *DenseMemory::Create(device);
    EXPECT_EQ(memory->IsHostMemory(), of_host);
    const auto floats = *memory->Allocate(3);
    std::vector<float> values(3, 7);
    ASSERT_TRUE(memory->ToHost(floats.get(), 3, values.data()).ok());
    EXPECT_EQ(values, (std::vector<float>{0, 0, 0}));
    values = {5, 6};
    ASSERT_TRUE(memory->FromHost(values.data(), 2, floats.get() + 1).ok());
    memory->stream().Scale(3, 2, floats.get());
    ASSERT_TRUE(memory->Finish().ok());
    values.assign(3, 7);
    ASSERT_TRUE(memory->ToHost(floats.get(), 3, values.data()).ok());
    EXPECT_EQ(values, (std::vector<float>{0, 10, 12}));
    EXPECT_TRUE(memory->ToHost(floats.get(), 0, nullptr).ok());
    EXPECT_TRUE(memory->status().ok());
  }
}

TEST(DenseMemoryTest, MemoryIsFreedUnlessTheDeviceMayStillUseIt) {
  SmallDevice device;
  auto memory = *DenseMemory::Create(device);
  {
    std::vector<std::shared_ptr<float>> held;
    for (size_t i = 0; i < 3; ++i) held.push_back(*memory->Allocate(i));
    EXPECT_TRUE(absl::IsResourceExhausted(memory->Allocate(1).status()));
  }
  EXPECT_EQ(device.pieces, 0u);
  auto held = *memory->Allocate(1);
  auto lost = *memory->Allocate(1);
  float* const data = lost.get();
  memory->Leak(std::move(lost));
  held = nullptr;
  EXPECT_EQ(device.pieces, 1u);
  memory = nullptr;
  EXPECT_EQ(device.pieces, 1u);
  device.Free(data);
}

}  // namespace
}  // namespace pawl
