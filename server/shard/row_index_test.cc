#include "server/shard/row_index.h"

#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(RowIndex, FindsOnlyInsertedKeys) {
  RowIndex index;
  EXPECT_EQ(index.Find(0), RowIndex::kNone);
  EXPECT_EQ(index.Find(~uint64_t{0}), RowIndex::kNone);
  EXPECT_EQ(index.FindOrInsert(5, 0), 0u);
  EXPECT_EQ(index.FindOrInsert(5, 1), 0u);
  EXPECT_EQ(index.Find(5), 0u);
  EXPECT_EQ(index.Find(6), RowIndex::kNone);
}

// Keys of all kinds of patterns, through every growth and the split.
TEST(RowIndex, AgreesWithAMap) {
  const struct {
    const char* name;
    uint64_t (*key)(uint64_t i, uint64_t random);
  } kPatterns[] = {
      {"random", [](uint64_t, uint64_t random) { return random; }},
      {"ascending", [](uint64_t i, uint64_t) { return i; }},
      {"descending", [](uint64_t i, uint64_t) { return ~i; }},
      {"multiples of 2^20", [](uint64_t i, uint64_t) { return i << 20; }},
      {"multiples of 2^45", [](uint64_t i, uint64_t) { return i << 45; }},
      {"fields", [](uint64_t i, uint64_t) { return (i % 26) << 56 | i / 26; }},
      {"repeated", [](uint64_t, uint64_t random) { return random % 10000; }},
  };
  for (const auto& pattern : kPatterns) {
    RowIndex index;
    std::unordered_map<uint64_t, uint32_t> expected;
    std::mt19937_64 random(1);
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 30000; ++i) {
      keys.push_back(pattern.key(i, random()));
      const auto row = static_cast<uint32_t>(expected.size());
      const uint32_t right = expected.try_emplace(keys.back(), row).first->second;
      ASSERT_EQ(index.FindOrInsert(keys.back(), row), right) << pattern.name;
      const uint64_t earlier = keys[random() % keys.size()];
      ASSERT_EQ(index.Find(earlier), expected.at(earlier)) << pattern.name;
    }
    for (const auto& [key, row] : expected) ASSERT_EQ(index.Find(key), row) << pattern.name;
    for (int i = 0; i < 10000; ++i) {
      const uint64_t key = random();
      const auto found = expected.find(key);
      ASSERT_EQ(index.Find(key), found == expected.end() ? RowIndex::kNone : found->second);
    }
  }
}

TEST(RowIndex, MovedIndexKeepsItsRows) {
  RowIndex first;
  for (uint32_t row = 0; row < 100; ++row) first.FindOrInsert(7 * row, row);
  const RowIndex second = std::move(first);
  for (uint32_t row = 0; row < 100; ++row) ASSERT_EQ(second.Find(7 * row), row);
}

}  // namespace
}  // namespace pawl
