#include "client_lib/session/key_groups.h"

#include <map>
#include <random>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

struct Expected {
  uint64_t key;
  std::vector<uint32_t> positions;
};

// A reference implementation with maps.
std::map<uint32_t, std::vector<Expected>> Reference(uint32_t table,
                                                    const std::vector<uint64_t>& keys,
                                                    uint32_t partitions) {
  std::map<uint32_t, std::vector<Expected>> groups;
  for (uint32_t position = 0; position < keys.size(); ++position) {
    std::vector<Expected>& group = groups[PartitionOf(table, keys[position], partitions)];
    bool found = false;
    for (Expected& expected : group) {
      if (expected.key != keys[position]) continue;
      expected.positions.push_back(position);
      found = true;
    }
    if (!found) group.push_back({keys[position], {position}});
  }
  return groups;
}

constexpr uint32_t kMaxKeys = 1000;

void ExpectEqual(const KeyGroups& groups,
                 const std::map<uint32_t, std::vector<Expected>>& reference) {
  ASSERT_EQ(groups.groups().size(), reference.size());
  auto expected = reference.begin();
  uint32_t index = 0;
  for (const KeyGroups::Group& group : groups.groups()) {
    EXPECT_EQ(group.partition, expected->first);
    ASSERT_EQ(group.begin, index);
    ASSERT_EQ(group.end - group.begin, expected->second.size());
    for (const Expected& key : expected->second) {
      EXPECT_EQ(groups.keys()[index], key.key);
      std::vector<uint32_t> positions;
      groups.ForEachPosition(index, [&](uint32_t position) { positions.push_back(position); });
      EXPECT_EQ(positions, key.positions);
      EXPECT_EQ(groups.first_position(index), key.positions[0]);
      ++index;
    }
    ++expected;
  }
  EXPECT_EQ(groups.keys().size(), index);
}

TEST(KeyGroupsTest, GroupsMatchTheReference) {
  std::mt19937_64 random(7);
  KeyGroups groups;  // Reused: nothing of one use may show in the next.
  for (int round = 0; round < 300; ++round) {
    const uint32_t partitions = round % 3 == 0 ? 1 : round % 3 == 1 ? 8 : 100;
    const uint64_t range = uint64_t{1} << (random() % 12);
    std::vector<uint64_t> keys(random() % 300);
    for (uint64_t& key : keys) key = random() % range;
    groups.Build(round, keys, partitions, false, kMaxKeys);
    ExpectEqual(groups, Reference(round, keys, partitions));
  }
}

TEST(KeyGroupsTest, DistinctKeysKeepTheirOrder) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 1000; ++i) keys.push_back(i * 977);
  KeyGroups groups;
  groups.Build(3, keys, 16, true, kMaxKeys);
  EXPECT_FALSE(groups.has_duplicates());
  ExpectEqual(groups, Reference(3, keys, 16));
}

TEST(KeyGroupsTest, KeysInTheOrderOfTheGroupsAreRecognised) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 1000; ++i) keys.push_back(i * 977);
  KeyGroups groups;
  groups.Build(3, keys, 16, true, kMaxKeys);
  EXPECT_FALSE(groups.in_order());
  const std::vector<uint64_t> in_order(groups.keys().begin(), groups.keys().end());
  groups.Build(3, in_order, 16, true, kMaxKeys);
  EXPECT_TRUE(groups.in_order());
  ExpectEqual(groups, Reference(3, in_order, 16));
  groups.Build(3, in_order, 16, /*distinct=*/false, kMaxKeys);
  EXPECT_FALSE(groups.in_order()) << "a key may be repeated";
  ExpectEqual(groups, Reference(3, in_order, 16));
}

TEST(KeyGroupsTest, LargeGroupsAreDivided) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 1000; ++i) keys.push_back(i * 977);
  KeyGroups whole;
  whole.Build(3, keys, 16, true, kMaxKeys);
  KeyGroups divided;
  divided.Build(3, keys, 16, true, 7);
  EXPECT_EQ(divided.keys(), whole.keys());
  size_t next = 0;
  for (const KeyGroups::Group& group : whole.groups()) {
    for (uint32_t begin = group.begin; begin < group.end; begin += 7, ++next) {
      ASSERT_LT(next, divided.groups().size());
      EXPECT_EQ(divided.groups()[next].partition, group.partition);
      EXPECT_EQ(divided.groups()[next].begin, begin);
      EXPECT_EQ(divided.groups()[next].end, std::min(begin + 7, group.end));
    }
  }
  EXPECT_EQ(divided.groups().size(), next);
}

TEST(KeyGroupsTest, NoKeysGiveNoGroups) {
  KeyGroups groups;
  groups.Build(3, {}, 16, false, kMaxKeys);
  EXPECT_TRUE(groups.groups().empty());
  EXPECT_TRUE(groups.keys().empty());
}

}  // namespace
}  // namespace pawl
