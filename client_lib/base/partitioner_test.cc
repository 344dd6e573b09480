#include "client_lib/base/partitioner.h"

#include <array>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// Clients in other languages compute the same values: they are part of the protocol.
TEST(Partitioner, NeverChanges) {
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5u);
  EXPECT_EQ(PartitionOf(1, 0, 256), 0xe220a8397b1dcdafu % 256);
}

TEST(Partitioner, IsTheRemainderForAnyNumberOfPartitions) {
  for (uint32_t partitions = 1; partitions <= 300; ++partitions) {
    for (uint64_t key = 0; key < 50; ++key) {
      const uint64_t mixed = Mix64(key + 7 * 0x9e3779b97f4a7c15u);
      EXPECT_EQ(PartitionOf(7, key, partitions), mixed % partitions);
    }
  }
}

TEST(Partitioner, SpreadsNeighbouringKeysEvenly) {
  constexpr int kPartitions = 256;
  constexpr int kKeys = 256 * 1000;
  std::array<int, kPartitions> count{};
  for (int key = 0; key < kKeys; ++key) ++count[PartitionOf(3, key, kPartitions)];
  for (int partition = 0; partition < kPartitions; ++partition) {
    EXPECT_NEAR(count[partition], 1000, 200) << "partition " << partition;
  }
}

TEST(Partitioner, LastBlockIsShort) {
  EXPECT_EQ(BlockCount(kBlockElements), 1u);
  EXPECT_EQ(BlockElements(kBlockElements, 0), kBlockElements);
  EXPECT_EQ(BlockCount(2 * kBlockElements + 5), 3u);
  EXPECT_EQ(BlockElements(2 * kBlockElements + 5, 1), kBlockElements);
  EXPECT_EQ(BlockElements(2 * kBlockElements + 5, 2), 5u);
}

}  // namespace
}  // namespace pawl
