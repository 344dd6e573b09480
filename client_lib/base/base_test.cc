#include <string>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/philox.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) { EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u); }

TEST(Crc32c, OfPiecesIsThatOfTheWhole) { EXPECT_EQ(Crc32c(Crc32c(0, "1234", 4), "56789", 5), Crc32c(0, "123456789", 9)); }

// The known answers that come with the authors' Random123 library for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Clients in other languages compute the same: these values are part of the protocol.
TEST(Partitioner, NeverChanges) {
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5u);
  EXPECT_EQ(PartitionOf(1, 0, 256), 0xe220a8397b1dcdafu % 256);
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

}  // namespace
}  // namespace pawl
