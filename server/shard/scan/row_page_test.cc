#include "server/shard/scan/row_page.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr size_t kWidth = 3;
constexpr size_t kRowBytes = sizeof(uint64_t) + kWidth * sizeof(float);
constexpr size_t kUnlimited = SIZE_MAX / 2;

TablePart MakeRows(const std::string& optimizer) {
  TableSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "id: 1 name: 'rows' kind: SPARSE row_width: 3 element_type: FLOAT32 "
      "initializer { constant { value: 10 } } optimizer {" +
          optimizer + "}",
      &spec));
  auto schema = TableSchema::Create(spec, 7);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return TablePart(*schema);
}

TablePart MakeRows() { return MakeRows("sgd { learning_rate: 1 }"); }

// Gives each key a row of (key mod 1000), so that a row tells its key.
void Add(TablePart& part, const std::vector<uint64_t>& keys) {
  for (const uint64_t key : keys) {
    const std::vector<float> values(kWidth, static_cast<float>(key % 1000));
    Assignment assignment;
    assignment.keys = ByteView(&key, sizeof(key));
    assignment.values = ByteView(values.data(), values.size() * sizeof(float));
    part.Assign(assignment);
  }
}

RowPage Page(const TablePart& part, uint64_t first_key, size_t rows, bool with_slots = false) {
  return ReadPage(part.Hold(), first_key,
                  {.rows = rows, .bytes = kUnlimited, .with_slots = with_slots});
}

// The keys of all pages, in their order. `between` runs after each page.
template <typename Between>
std::vector<uint64_t> ScanKeys(const TablePart& part, size_t rows, Between between) {
  std::vector<uint64_t> keys;
  uint64_t next = 0;
  for (;;) {
    const RowPage page = Page(part, next, rows);
    keys.insert(keys.end(), page.keys.begin(), page.keys.end());
    for (size_t i = 0; i < page.keys.size(); ++i) {
      EXPECT_EQ(page.values[i * kWidth], static_cast<float>(page.keys[i] % 1000));
      EXPECT_EQ(page.values[i * kWidth + kWidth - 1], static_cast<float>(page.keys[i] % 1000));
    }
    if (page.done) return keys;
    if (page.keys.empty() || page.next_key <= page.keys.back()) {
      ADD_FAILURE() << "the scan does not end: the next key is " << page.next_key;
      return keys;
    }
    next = page.next_key;
    between();
  }
}

std::vector<uint64_t> ScanKeys(const TablePart& part, size_t rows) {
  return ScanKeys(part, rows, [] {});
}

std::vector<uint64_t> RandomKeys(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> keys(count);
  for (uint64_t& key : keys) key = random();
  return keys;
}

std::vector<uint64_t> Sorted(std::vector<uint64_t> keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST(RowPageTest, PartWithoutRowsIsOneEmptyPage) {
  const RowPage page = Page(MakeRows(), 0, 10);
  EXPECT_TRUE(page.keys.empty());
  EXPECT_TRUE(page.done);
}

TEST(RowPageTest, PagesHaveEachRowOnceInTheOrderOfTheKeys) {
  TablePart part = MakeRows();
  const std::vector<uint64_t> keys = RandomKeys(1000, 1);
  Add(part, keys);
  for (const size_t rows : {1, 2, 7, 250, 499, 500, 501, 999, 1000, 1001, 5000}) {
    EXPECT_EQ(ScanKeys(part, rows), Sorted(keys)) << rows << " rows a page";
  }
}

TEST(RowPageTest, FullLastPageIsTheLast) {
  TablePart part = MakeRows();
  Add(part, {5, 3, 9, 7});
  const RowPage first = Page(part, 0, 2);
  EXPECT_EQ(first.keys, (std::vector<uint64_t>{3, 5}));
  EXPECT_FALSE(first.done);
  EXPECT_EQ(first.next_key, 6u);
  const RowPage second = Page(part, first.next_key, 2);
  EXPECT_EQ(second.keys, (std::vector<uint64_t>{7, 9}));
  EXPECT_TRUE(second.done);
}

TEST(RowPageTest, LargestAndSmallestKeysAreFound) {
  TablePart part = MakeRows();
  Add(part, {UINT64_MAX, 0, UINT64_MAX - 1});
  EXPECT_EQ(ScanKeys(part, 1), (std::vector<uint64_t>{0, UINT64_MAX - 1, UINT64_MAX}));
  EXPECT_EQ(ScanKeys(part, 2), (std::vector<uint64_t>{0, UINT64_MAX - 1, UINT64_MAX}));
}

TEST(RowPageTest, RowsCreatedMeanwhileDoNotRepeatOrHideOthers) {
  TablePart part = MakeRows();
  const std::vector<uint64_t> before = RandomKeys(500, 2);
  Add(part, before);
  const std::vector<uint64_t> later = RandomKeys(500, 3);
  size_t added = 0;
  const std::vector<uint64_t> seen = ScanKeys(part, 10, [&] {
    if (added < later.size()) Add(part, {later[added++]});
  });
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
  for (const uint64_t key : before)
    EXPECT_TRUE(std::binary_search(seen.begin(), seen.end(), key)) << key;
}

TEST(RowPageTest, ReplicaWithAnotherOrderOfRowsContinuesTheScan) {
  const std::vector<uint64_t> keys = RandomKeys(300, 4);
  TablePart one = MakeRows();
  Add(one, keys);
  TablePart other = MakeRows();
  Add(other, std::vector<uint64_t>(keys.rbegin(), keys.rend()));
  std::vector<uint64_t> seen;
  uint64_t next = 0;
  for (int i = 0;; ++i) {
    const RowPage page = Page(i % 2 == 0 ? one : other, next, 7);
    seen.insert(seen.end(), page.keys.begin(), page.keys.end());
    if (page.done) break;
    next = page.next_key;
  }
  EXPECT_EQ(seen, Sorted(keys));
}

TEST(RowPageTest, BytesLimitThePageButNotItsFirstRow) {
  TablePart part = MakeRows();
  Add(part, {1, 2, 3, 4});
  const auto rows = [&](size_t bytes) {
    return ReadPage(part.Hold(), 0, {.rows = 100, .bytes = bytes}).keys.size();
  };
  EXPECT_EQ(rows(4 * kRowBytes), 4u);
  EXPECT_EQ(rows(4 * kRowBytes - 1), 3u);
  EXPECT_EQ(rows(kRowBytes), 1u);
  EXPECT_EQ(rows(1), 1u);
}

TEST(RowPageTest, PageIsTheStateAtTheHold) {
  TablePart part = MakeRows();
  Add(part, {1, 2});
  const HeldTable held = part.Hold();
  Add(part, {3});
  const uint64_t key = 1;
  const std::vector<float> gradient(kWidth, 1);
  part.Apply(
      0, 1,
      {ByteView(&key, sizeof(key)), ByteView(gradient.data(), sizeof(float) * kWidth), nullptr});
  const RowPage page = ReadPage(held, 0, {.rows = 10, .bytes = kUnlimited});
  EXPECT_EQ(page.keys, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(page.values, (std::vector<float>{1, 1, 1, 2, 2, 2}));
}

TEST(RowPageTest, SlotsAreThoseOfAPull) {
  TablePart part = MakeRows("adam { learning_rate: 0.1 beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }");
  const std::vector<uint64_t> keys = {8, 4};
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 3; ++i) {
    part.Apply(0, 1,
               {ByteView(keys.data(), sizeof(uint64_t) * keys.size()),
                ByteView(gradients.data(), sizeof(float) * gradients.size()), nullptr});
  }
  const RowPage page = Page(part, 0, 10, /*with_slots=*/true);
  ASSERT_EQ(page.keys, (std::vector<uint64_t>{4, 8}));
  std::vector<float> pulled(page.slots.size());
  ASSERT_EQ(pulled.size(), 2 * (2 * kWidth + 1));
  part.ReadSlots(ByteView(page.keys.data(), sizeof(uint64_t) * page.keys.size()),
                 reinterpret_cast<char*>(pulled.data()));
  EXPECT_EQ(page.slots, pulled);
  EXPECT_EQ(page.slots.back(), 3.0f);
  EXPECT_TRUE(Page(part, 0, 10).slots.empty());
}

}  // namespace
}  // namespace pawl
