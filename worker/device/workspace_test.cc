#include "worker/device/workspace.h"

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "worker/device/cpu/device.h"

namespace pawl {
namespace {

// Counts allocations that have not been freed.
class CountingDevice final : public Device {
 public:
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    ++allocations;
    ++live;
    return cpu_.Allocate(bytes);
  }
  void Free(void* data) override {
    --live;
    cpu_.Free(data);
  }
  bool SharesHostMemory() const override { return true; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { return cpu_.CreateStream(); }

  int allocations = 0;
  int live = 0;

 private:
  CpuDevice cpu_;
};

TEST(WorkspaceTest, PiecesAreAlignedAndDisjoint) {
  CpuDevice device;
  Workspace workspace(device);
  char* pieces[100];
  for (int i = 0; i < 100; ++i) {
    pieces[i] = *workspace.Allocate<char>(50000 + i);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces[i]) % 64, 0u);
    std::memset(pieces[i], i, 50000 + i);
  }
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 50000 + i; ++j) ASSERT_EQ(pieces[i][j], i);
  }
}

TEST(WorkspaceTest, EqualStepsAllocateOnlyTwice) {
  CountingDevice device;
  {
    Workspace workspace(device);
    int after_second = 0;
    for (int step = 0; step < 5; ++step) {
      workspace.Reset();
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(workspace.AllocateMatrix(1000, 100 + i).ok());
      if (step == 1) after_second = device.allocations;
    }
    EXPECT_EQ(device.allocations, after_second);
    EXPECT_EQ(device.live, 1);
  }
  EXPECT_EQ(device.live, 0);
}

TEST(WorkspaceTest, RefusesMoreThanItsLimitAndRecovers) {
  CpuDevice device;
  Workspace workspace(device, 1 << 20);
  ASSERT_TRUE(workspace.Allocate<float>(200000).ok());
  EXPECT_EQ(workspace.Allocate<float>(100000).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(workspace.Allocate<float>(SIZE_MAX / 2).status().code(),
            absl::StatusCode::kResourceExhausted);
  workspace.Reset();
  EXPECT_TRUE(workspace.Allocate<float>(250000).ok());
}

TEST(WorkspaceTest, PeakIsThatOfTheLargestStep) {
  CpuDevice device;
  Workspace workspace(device);
  for (const size_t count : {1000, 300000, 20}) {
    workspace.Reset();
    ASSERT_TRUE(workspace.Allocate<float>(count).ok());
    ASSERT_TRUE(workspace.Allocate<char>(1).ok());
  }
  EXPECT_EQ(workspace.peak_bytes(), 1200000u + 64u);
}

TEST(WorkspaceTest, ZeroElementsAreAllowed) {
  CpuDevice device;
  Workspace workspace(device);
  EXPECT_TRUE(workspace.Allocate<float>(0).ok());
  EXPECT_TRUE(workspace.AllocateMatrix(0, 7).ok());
}

}  // namespace
}  // namespace pawl
