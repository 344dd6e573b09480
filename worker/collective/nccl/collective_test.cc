// Tests without a GPU; with one, also of a group of one member.
#include "worker/collective/nccl/collective.h"

#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(NcclCollectiveTest, PlaceOutsideTheGroupIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(NcclCollective::Create({.size = 2, .place = 2}).status()));
}

TEST(NcclCollectiveTest, MissingGpuIsRefused) {
  EXPECT_TRUE(absl::IsUnavailable(NcclCollective::Create({.device = 1000}).status()));
}

TEST(NcclCollectiveTest, GroupOfOneSumsItsOwnInput) {
  auto collective = NcclCollective::Create({});
  if (absl::IsUnavailable(collective.status())) GTEST_SKIP() << collective.status();
  ASSERT_TRUE(collective.ok()) << collective.status();
  std::promise<absl::Status> connected, summed;
  (*collective)
      ->Connect({(*collective)->introduction()}, std::chrono::seconds(30),
                [&](absl::Status status) { connected.set_value(status); });
  const absl::Status status = connected.get_future().get();
  ASSERT_TRUE(status.ok()) << status;
  std::vector<float> values(1000, 3), sums(1000);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4000), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(memory, values.data(), 4000, cudaMemcpyHostToDevice), cudaSuccess);
  (*collective)
      ->AllReduce(memory, memory, 1000, CollectiveType::kFloat32, Reduction::kSum,
                  std::chrono::seconds(30), [&](absl::Status ended) { summed.set_value(ended); });
  EXPECT_TRUE(summed.get_future().get().ok());
  ASSERT_EQ(cudaMemcpy(sums.data(), memory, 4000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(sums, values);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace
}  // namespace pawl
