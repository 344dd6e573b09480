#include "client_lib/c/distinct_keys.h"

#include <random>
#include <vector>

#include "client_lib/session/key_groups.h"
#include "gtest/gtest.h"

namespace pawl::c {
namespace {

TEST(DistinctKeysTest, OrderIsThatOfKeyGroups) {
  std::mt19937_64 random(3);
  DistinctKeys distinct_keys;
  KeyGroups groups;
  for (const uint32_t partitions : {1u, 7u, 32u}) {
    for (const size_t count : {0u, 1u, 20u, 3000u}) {
      for (const uint64_t different : {1u, 10u, 1'000'000u}) {
        std::vector<uint64_t> keys(count);
        // Keys may have all 64 bits, and 0 is one.
        for (uint64_t& key : keys) key = (random() % different) * 0x9e3779b97f4a7c15u;
        groups.Build(/*table=*/5, keys, partitions, /*distinct=*/false, UINT32_MAX);
        std::vector<uint64_t> distinct(count);
        std::vector<int64_t> places(count);
        distinct.resize(distinct_keys.Find(/*table=*/5, keys, partitions, /*first=*/100,
                                           distinct.data(), places.data()));
        ASSERT_EQ(distinct, std::vector<uint64_t>(groups.keys().begin(), groups.keys().end()));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(distinct[places[i] - 100], keys[i]);
      }
    }
  }
}

TEST(DistinctKeysTest, LargeBatchDoesNotKeepItsMemory) {
  DistinctKeys distinct_keys;
  std::vector<uint64_t> keys(DistinctKeys::kMaxKeptBytes / (2 * sizeof(uint32_t)) + 1);
  std::vector<int64_t> places(keys.size());
  uint64_t distinct = 0;
  EXPECT_EQ(distinct_keys.Find(/*table=*/5, absl::MakeConstSpan(keys).first(100), 4, /*first=*/0,
                               &distinct, places.data()),
            1u);
  EXPECT_GT(distinct_keys.kept_bytes(), 0u);
  EXPECT_EQ(distinct_keys.Find(/*table=*/5, keys, 4, /*first=*/0, &distinct, places.data()), 1u);
  EXPECT_EQ(distinct_keys.kept_bytes(), 0u);
  EXPECT_EQ(distinct_keys.Find(/*table=*/5, absl::MakeConstSpan(keys).first(100), 4, /*first=*/7,
                               &distinct, places.data()),
            1u);
  EXPECT_EQ(places[99], 7);
}

}  // namespace
}  // namespace pawl::c
