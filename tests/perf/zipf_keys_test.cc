#include "tests/perf/zipf_keys.h"

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ZipfKeysTest, KeysAreDistinctAndInRange) {
  absl::flat_hash_set<uint64_t> table;
  for (uint64_t rank = 0; rank < 100000; ++rank) table.insert(ZipfKeys::KeyOf(rank));
  ASSERT_EQ(table.size(), 100000u);
  const std::vector<uint64_t> keys = ZipfKeys(100000, 1).Distinct(2000);
  EXPECT_EQ(absl::flat_hash_set<uint64_t>(keys.begin(), keys.end()).size(), 2000u);
  for (const uint64_t key : keys) EXPECT_TRUE(table.contains(key));
}

TEST(ZipfKeysTest, FrequentKeysAreInEveryDraw) {
  ZipfKeys zipf(1000000, 1);
  const std::vector<uint64_t> first = zipf.Distinct(10000);
  const std::vector<uint64_t> second = zipf.Distinct(10000);
  const absl::flat_hash_set<uint64_t> in_first(first.begin(), first.end());
  for (uint64_t rank = 0; rank < 20; ++rank) EXPECT_TRUE(in_first.contains(ZipfKeys::KeyOf(rank)));
  size_t common = 0;
  for (const uint64_t key : second) common += in_first.contains(key);
  EXPECT_GT(common, 1000u);
  EXPECT_LT(common, 7000u);
}

}  // namespace
}  // namespace pawl
