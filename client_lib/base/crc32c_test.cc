#include "client_lib/base/crc32c.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) { EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u); }

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  EXPECT_EQ(Crc32c(Crc32c(0, "1234", 4), "56789", 5), Crc32c(0, "123456789", 9));
}

}  // namespace
}  // namespace pawl
