#include "client_lib/base/crc32c.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) { EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u); }

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  EXPECT_EQ(Crc32c(Crc32c(0, "1234", 4), "56789", 5), Crc32c(0, "123456789", 9));
}

TEST(Crc32c, MaskIsThatOfTensorFlow) {
  // From a file that TensorFlow wrote: the length 24 of a first event.
  EXPECT_EQ(MaskedCrc32c("\x18\0\0\0\0\0\0\0", 8), 0x224b7fa3u);
}

TEST(Crc32, GivesThePublishedCheckValue) {
  EXPECT_EQ(Crc32(0, "123456789", 9), 0xcbf43926u);
  EXPECT_EQ(Crc32(Crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
}

}  // namespace
}  // namespace pawl
