#include "server/shard/row_store.h"

#include <cstring>
#include <map>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// Rows must not overlap and must not move, whatever their width.
TEST(RowStore, KeepsEveryRowWhereItIs) {
  for (const size_t width : {1u, 3u, 16u, 17u, 1000u, 5000u}) {
    RowStore store(width);
    std::map<uint64_t, float*> where;
    for (uint64_t key = 0; key < 500; ++key) {
      bool inserted = false;
      float* row = store.FindOrInsert(key * 7919, width, inserted);
      ASSERT_TRUE(inserted);
      for (size_t i = 0; i < width; ++i) row[i] = static_cast<float>(key);
      where[key] = row;
    }
    for (const auto& [key, row] : where) {
      ASSERT_EQ(store.Find(key * 7919), row);
      for (size_t i = 0; i < width; ++i) ASSERT_EQ(row[i], static_cast<float>(key)) << "width " << width;
    }
    EXPECT_EQ(store.size(), 500u);
    EXPECT_EQ(store.float_count(), 500 * width);
  }
}

TEST(RowStore, WideRowsBeginOnACacheLine) {
  RowStore store(17);
  for (uint64_t key = 0; key < 100; ++key) {
    bool inserted;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.FindOrInsert(key, 17, inserted)) % 64, 0u);
  }
}

TEST(RowStore, FindsWhatItInsertedAndNothingElse) {
  RowStore store(0);
  bool inserted;
  float* block = store.FindOrInsert(~uint64_t{0}, 70000, inserted);
  EXPECT_TRUE(inserted);
  EXPECT_EQ(store.FindOrInsert(~uint64_t{0}, 70000, inserted), block);
  EXPECT_FALSE(inserted);
  EXPECT_EQ(store.Find(0), nullptr);
  store.FindOrInsert(5, 1, inserted);
  EXPECT_EQ(store.SortedKeys(), (std::vector<uint64_t>{5, ~uint64_t{0}}));
}

}  // namespace
}  // namespace pawl
