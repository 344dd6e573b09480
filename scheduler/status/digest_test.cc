#include "scheduler/status/digest.h"

#include <algorithm>

#include "client_lib/base/crc32c.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

PartitionDigest Record(uint32_t table, uint32_t partition, uint32_t crc, uint64_t rows) {
  PartitionDigest record;
  record.set_table(table);
  record.set_partition(partition);
  record.set_crc32c(crc);
  record.set_rows(rows);
  return record;
}

TEST(DigestTest, DigestIsTheCrcOfTheDocumentedBytes) {
  const unsigned char bytes[] = {0x77, 0, 3, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(*CombineDigests({{9, "w"}}, {Record(9, 3, 0x01020304, 5)}),
            Crc32c(0, bytes, sizeof(bytes)));
}

TEST(DigestTest, DigestIgnoresRecordOrderAndTableIds) {
  std::vector<PartitionDigest> records = {Record(1, 0, 11, 1), Record(1, 1, 12, 1),
                                          Record(2, 0, 13, 2)};
  const uint32_t digest = *CombineDigests({{1, "a"}, {2, "b"}}, records);
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(*CombineDigests({{1, "a"}, {2, "b"}}, records), digest);
  EXPECT_EQ(*CombineDigests({{7, "a"}, {5, "b"}},
                            {Record(5, 0, 13, 2), Record(7, 1, 12, 1), Record(7, 0, 11, 1)}),
            digest);
}

TEST(DigestTest, EmptyPartitionsDoNotCount) {
  EXPECT_EQ(*CombineDigests({{1, "a"}}, {}), 0u);
  EXPECT_EQ(*CombineDigests({{1, "a"}}, {Record(1, 4, 99, 0), Record(8, 4, 99, 0)}), 0u);
}

TEST(DigestTest, DigestDependsOnEveryField) {
  const uint32_t digest = *CombineDigests({{1, "a"}}, {Record(1, 0, 11, 1)});
  EXPECT_NE(*CombineDigests({{1, "b"}}, {Record(1, 0, 11, 1)}), digest);
  EXPECT_NE(*CombineDigests({{1, "a"}}, {Record(1, 1, 11, 1)}), digest);
  EXPECT_NE(*CombineDigests({{1, "a"}}, {Record(1, 0, 12, 1)}), digest);
  EXPECT_NE(*CombineDigests({{1, "a"}}, {Record(1, 0, 11, 2)}), digest);
}

TEST(DigestTest, PartitionReportedTwiceOrOfAnUnknownTableIsAnError) {
  EXPECT_EQ(CombineDigests({{1, "a"}}, {Record(1, 0, 11, 1), Record(1, 0, 11, 1)}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(CombineDigests({{1, "a"}}, {Record(2, 0, 11, 1)}).status().code(),
            absl::StatusCode::kInternal);
}

TEST(DigestTest, TextHasEightDigits) { EXPECT_EQ(DigestText(0xab), "000000ab"); }

}  // namespace
}  // namespace pawl
