#include "server/shard/row_store.h"

#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// Rows must neither overlap nor move, whatever their width.
TEST(RowStore, RowsKeepTheirAddress) {
  for (const size_t width : {1u, 3u, 16u, 17u, 1000u, 5000u}) {
    RowStore store(width);
    std::map<uint64_t, const float*> where;
    for (uint64_t key = 0; key < 500; ++key) {
      bool inserted = false;
      float* row = store.FindOrInsert(key * 7919, width, inserted);
      ASSERT_TRUE(inserted);
      for (size_t i = 0; i < width; ++i) row[i] = static_cast<float>(key);
      where[key] = row;
    }
    for (const auto& [key, row] : where) {
      ASSERT_EQ(store.Find(key * 7919), row);
      for (size_t i = 0; i < width; ++i)
        ASSERT_EQ(row[i], static_cast<float>(key)) << "width " << width;
    }
    EXPECT_EQ(store.size(), 500u);
    EXPECT_EQ(store.float_count(), 500 * width);
  }
}

TEST(RowStore, WideRowsAreAligned) {
  for (const auto& [width, alignment] : {std::pair(16u, 64u), {17u, 16u}, {32u, 64u}, {49u, 16u}}) {
    RowStore store(width);
    for (uint64_t key = 0; key < 300; ++key) {
      bool inserted;
      const float* const row = store.FindOrInsert(key, width, inserted);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(row) % alignment, 0u) << width;
    }
  }
}

TEST(RowStore, FindsOnlyInsertedKeys) {
  RowStore store(0);
  bool inserted;
  float* block = store.FindOrInsert(~uint64_t{0}, 70000, inserted);
  EXPECT_TRUE(inserted);
  EXPECT_EQ(store.FindOrInsert(~uint64_t{0}, 70000, inserted), block);
  EXPECT_FALSE(inserted);
  EXPECT_EQ(store.Find(0), nullptr);
  store.FindOrInsert(5, 1, inserted);
  std::vector<uint64_t> keys;
  store.ForEach([&](uint64_t key, const float*) { keys.push_back(key); });
  EXPECT_EQ(keys, (std::vector<uint64_t>{~uint64_t{0}, 5}));
}

// Covers every width with its own slab layout, growing indexes and several holds at a time.
TEST(RowStore, HoldDoesNotChange) {
  for (const size_t width : {1u, 3u, 16u, 17u, 1000u, 5000u}) {
    RowStore store(width);
    std::mt19937_64 random(width);
    std::map<uint64_t, float> now;
    struct Kept {
      HeldRows rows;
      std::map<uint64_t, float> then;
      size_t released = 0;
    };
    std::deque<Kept> kept;
    for (int i = 0; i < (width > 100 ? 500 : 20000); ++i) {
      const uint64_t key = random() % (width > 100 ? 300 : 12000);
      bool inserted;
      float* const row = store.FindOrInsert(key, width, inserted);
      ASSERT_EQ(inserted, !now.contains(key));
      if (!inserted) {
        ASSERT_EQ(row[width - 1], now[key]);
      }
      now[key] = static_cast<float>(i);
      row[0] = row[width - 1] = static_cast<float>(i);
      if (random() % 200 == 0) kept.push_back({store.Hold(), now});
      // They are read while the store changes.
      for (Kept& hold : kept) {
        if (hold.released == hold.rows.slab_count() || random() % 20 != 0) continue;
        hold.rows.ForEachInSlab(hold.released, [&](uint64_t held, const float* memory) {
          ASSERT_EQ(memory[width - 1], hold.then.at(held)) << "width " << width;
          hold.then.erase(held);
        });
        hold.rows.Release(hold.released++);
      }
      while (!kept.empty() && kept.front().released == kept.front().rows.slab_count()) {
        ASSERT_TRUE(kept.front().then.empty());
        kept.pop_front();
      }
    }
    for (const auto& [key, value] : now) ASSERT_EQ(store.Find(key)[width - 1], value);
  }
}

}  // namespace
}  // namespace pawl
