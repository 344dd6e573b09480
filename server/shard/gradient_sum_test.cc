#include "server/shard/gradient_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Floats = std::vector<float>;
using Sums = std::map<uint64_t, Floats>;

std::shared_ptr<const TableSchema> Table(uint32_t width) {
  return TableSchema::Create(WithSgd(SparseTableSpec("rows", width, 1)), 7).value();
}

struct Data {
  std::vector<uint64_t> keys;
  Floats values;
};

// With fragments of `fragment_bytes`, as messages have.
Gradient GradientOf(Data data, size_t fragment_bytes) {
  const auto owner = std::make_shared<Data>(std::move(data));
  Gradient gradient{ByteView(owner->keys.data(), owner->keys.size() * 8), ByteView(), owner};
  const size_t size = owner->values.size() * sizeof(float);
  const char* const bytes = reinterpret_cast<const char*>(owner->values.data());
  for (size_t at = 0; at < size; at += fragment_bytes)
    gradient.values.Append(bytes + at, std::min(fragment_bytes, size - at));
  return gradient;
}

// Reads each run during the visit of the next one, as long as it is valid.
Sums Read(const GradientSum& sum, size_t width) {
  Sums sums;
  absl::Span<const uint64_t> run, prepared;
  const char* const* rows = nullptr;
  size_t empty_runs = 0;
  sum.ForEachRun([&](absl::Span<const uint64_t> keys) { prepared = keys; },
                 [&](absl::Span<const uint64_t> next, const char* const* next_rows) {
                   EXPECT_LE(next.size(), kRowsInRun);
                   EXPECT_EQ(empty_runs, 0u);
                   empty_runs += next.empty();
                   if (!next.empty()) {
                     EXPECT_EQ(prepared, next);
                   }
                   for (size_t i = 0; i < run.size(); ++i) {
                     Floats row(width);
                     std::memcpy(row.data(), rows[i], width * sizeof(float));
                     EXPECT_TRUE(sums.emplace(run[i], std::move(row)).second)
                         << "key " << run[i] << " twice";
                   }
                   run = next;
                   rows = next_rows;
                 });
  EXPECT_EQ(empty_runs, 1u);
  return sums;
}

Sums Held(const GradientSum& sum, size_t width) {
  Sums sums;
  sum.Hold().ForEach([&](uint64_t key, const float* row) { sums[key] = Floats(row, row + width); });
  return sums;
}

// The magnitudes differ, so that another order gives other bits.
TEST(GradientSum, AddsInTheOrderOfArrivalHoweverGradientsWait) {
  for (const uint32_t width : {1u, 3u, 16u, 100u, 3000u}) {
    std::mt19937 random(width);
    for (int round = 0; round < 20; ++round) {
      GradientSum sum(Table(width));
      Sums expected;
      for (int i = 0; i < 6; ++i) {
        Data data;
        for (size_t row = random() % 200; row > 0; --row) {
          const uint64_t key = random() % 100;
          data.keys.push_back(key);
          Floats values(width);
          for (float& value : values)
            value = std::ldexp(static_cast<float>(random() % 1001) - 500, random() % 40);
          data.values.insert(data.values.end(), values.begin(), values.end());
          const auto [entry, is_new] = expected.try_emplace(key, values);
          if (is_new) continue;
          for (uint32_t k = 0; k < width; ++k) entry->second[k] += values[k];
        }
        Gradient gradient = GradientOf(std::move(data), 1 + random() % 5000);
        switch (random() % 4) {
          case 0:
            sum.AddNow(gradient);
            break;
          case 1:
            sum.AddWaiting();
            [[fallthrough]];
          default:
            sum.AddLater(std::move(gradient));
        }
      }
      // A hold adds what waits.
      ASSERT_EQ(Read(sum, width), expected) << "width " << width;
      ASSERT_EQ(Held(sum, width), expected) << "width " << width;
      sum.AddWaiting();
      ASSERT_EQ(Held(sum, width), expected) << "width " << width;
      ASSERT_EQ(Read(sum, width), expected) << "width " << width;
    }
  }
}

TEST(GradientSum, KeepsTheSignOfASingleZero) {
  GradientSum sum(Table(1));
  sum.AddLater(GradientOf({{1, 2, 2}, {-0.0f, -0.0f, 0.0f}}, 100));
  const Sums sums = Read(sum, 1);
  EXPECT_TRUE(std::signbit(sums.at(1)[0]));
  EXPECT_FALSE(std::signbit(sums.at(2)[0]));
}

TEST(GradientSum, RowInOneGradientIsNotCopied) {
  GradientSum sum(Table(2));
  const Gradient gradient = GradientOf({{1, 2}, {1, 2, 3, 4}}, 100);
  sum.AddLater(gradient);
  sum.ForEachRun([](absl::Span<const uint64_t>) {},
                 [&](absl::Span<const uint64_t> keys, const char* const* sums) {
                   if (keys.empty()) return;
                   ASSERT_EQ(keys.size(), 2u);
                   EXPECT_EQ(sums[0], gradient.values.fragments()[0].data());
                   EXPECT_EQ(sums[1], sums[0] + 2 * sizeof(float));
                 });
}

TEST(GradientSum, ReleasesGradientsThatNoLongerWait) {
  GradientSum sum(Table(1));
  Gradient gradient = GradientOf({{1}, {5}}, 100);
  const std::weak_ptr<const void> owner = gradient.owner;
  sum.AddLater(std::move(gradient));
  gradient = Gradient();
  EXPECT_FALSE(owner.expired());
  sum.AddWaiting();
  EXPECT_TRUE(owner.expired());
}

}  // namespace
}  // namespace pawl
