#include "client_lib/session/segments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/elements.h"
#include "client_lib/base/half.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

Table Sparse(uint32_t width) { return Table(SparseTableSpec("sparse", width, 3)); }

Table Dense(uint64_t elements) { return Table(DenseTableSpec("dense", {elements}, 4)); }

template <typename T>
std::vector<T> Unpack(const ByteView& view) {
  std::vector<T> values(view.size() / sizeof(T));
  view.CopyTo(values.data());
  return values;
}

// The same bytes in fragments of random sizes with their own memory.
ByteView Refragment(const ByteView& view, std::mt19937_64& random,
                    std::vector<std::string>& memory) {
  std::string bytes(view.size(), '\0');
  view.CopyTo(bytes.data());
  ByteView fragmented;
  memory.clear();
  memory.reserve(100);
  for (size_t begin = 0; begin < bytes.size() && memory.size() < 99;) {
    const size_t size =
        memory.size() == 98 ? bytes.size() - begin : 1 + random() % (bytes.size() / 3 + 1);
    memory.push_back(bytes.substr(begin, size));
    begin += memory.back().size();
  }
  for (const std::string& piece : memory) fragmented.Append(piece.data(), piece.size());
  return fragmented;
}

SegmentView Gathered(Segmenter& segmenter, const Table& table, const Segmenter::Segment& segment,
                     const std::vector<float>& gradients, ElementType type = FLOAT32) {
  SegmentView view;
  segmenter.Gather(table, segment, gradients.data(), type, view);
  return view;
}

TEST(SegmentsTest, SegmentsHaveOnePartitionAndAtMostOneMebibyte) {
  std::mt19937_64 random(1);
  for (const uint32_t width : {1u, 3u, 16u, 4096u}) {
    const Table table = Sparse(width);
    std::vector<uint64_t> keys(width == 1 ? 600000 : 2000);
    for (uint64_t& key : keys) key = random() % 1000000;
    Segmenter segmenter;
    segmenter.Build(table, keys, 2, false);
    std::set<uint64_t> seen;
    uint32_t next = 0;
    for (const Segmenter::Segment& segment : segmenter.segments()) {
      EXPECT_EQ(segment.begin, next);
      next = segment.end;
      EXPECT_LE(segmenter.ValueBytes(table, segment), kMaxSegmentValueBytes);
      for (const uint64_t key : Unpack<uint64_t>(segmenter.Keys(segment))) {
        EXPECT_EQ(PartitionOf(3, key, 2), segment.partition);
        EXPECT_TRUE(seen.insert(key).second);
      }
    }
    EXPECT_EQ(seen, std::set<uint64_t>(keys.begin(), keys.end()));
  }
}

TEST(SegmentsTest, RowsAreScatteredFromAnyFragments) {
  std::mt19937_64 random(2);
  Segmenter segmenter;  // Reused, as by the pool.
  for (int round = 0; round < 200; ++round) {
    const uint32_t width = 1 + random() % 20;
    const Table table = Sparse(width);
    std::vector<uint64_t> keys(random() % 200);
    for (uint64_t& key : keys) key = random() % 100;
    std::vector<float> gradients(keys.size() * width);
    for (float& g : gradients) g = static_cast<float>(random() % 1000);
    segmenter.Build(table, keys, 8, false);
    segmenter.AllocateGradients(table);
    std::map<uint64_t, std::vector<float>> sums;
    for (size_t i = 0; i < keys.size(); ++i) {
      sums[keys[i]].resize(width);
      for (uint32_t j = 0; j < width; ++j) sums[keys[i]][j] += gradients[i * width + j];
    }
    std::vector<float> out(gradients.size(), -1);
    for (const Segmenter::Segment& segment : segmenter.segments()) {
      const ByteView rows = Gathered(segmenter, table, segment, gradients).values;
      ASSERT_EQ(rows.size(), segmenter.ValueBytes(table, segment));
      const std::vector<uint64_t> cut_keys = Unpack<uint64_t>(segmenter.Keys(segment));
      const std::vector<float> values = Unpack<float>(rows);
      for (size_t i = 0; i < cut_keys.size(); ++i) {
        ASSERT_EQ(std::vector<float>(values.begin() + i * width, values.begin() + (i + 1) * width),
                  sums[cut_keys[i]]);
      }
      std::vector<std::string> memory;
      segmenter.Scatter(table, segment, Refragment(rows, random, memory), out.data());
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(std::vector<float>(out.begin() + i * width, out.begin() + (i + 1) * width),
                sums[keys[i]]);
    }
  }
}

TEST(SegmentsTest, RowsInTheOrderOfTheirPartitionsAreNotCopied) {
  std::mt19937_64 random(6);
  const Table table = Sparse(3);
  Segmenter segmenter;
  std::vector<uint64_t> keys(500);
  std::iota(keys.begin(), keys.end(), 7);
  segmenter.Build(table, keys, 8, true);
  keys.assign(segmenter.keys().begin(), segmenter.keys().end());
  std::vector<float> gradients(keys.size() * 3);
  std::iota(gradients.begin(), gradients.end(), 1.f);
  for (const ElementType type : {FLOAT32, BFLOAT16}) {
    segmenter.Build(table, keys, 8, true);
    segmenter.AllocateGradients(table, type);
    std::vector<float> out(gradients.size(), -1);
    for (const Segmenter::Segment& segment : segmenter.segments()) {
      const ByteView rows = Gathered(segmenter, table, segment, gradients, type).values;
      ASSERT_EQ(rows.size(), segmenter.ValueBytes(table, segment, type));
      const float* const in_place = gradients.data() + segment.begin * 3;
      EXPECT_EQ(rows.fragments()[0].data() == reinterpret_cast<const char*>(in_place),
                type == FLOAT32);
      if (type != FLOAT32) continue;
      std::vector<std::string> memory;
      segmenter.Scatter(table, segment, Refragment(rows, random, memory), out.data());
    }
    if (type == FLOAT32) {
      EXPECT_EQ(out, gradients);
    }
  }
}

TEST(SegmentsTest, TensorsAreScatteredFromAnyFragments) {
  std::mt19937_64 random(3);
  for (const uint64_t elements :
       {uint64_t{1}, kBlockElements - 1, 9 * kBlockElements, 9 * kBlockElements + 3}) {
    const Table table = Dense(elements);
    std::vector<float> tensor(elements);
    std::iota(tensor.begin(), tensor.end(), 0.f);
    Segmenter segmenter;
    segmenter.Build(table, {}, 3, true);
    std::vector<float> out(elements, -1);
    size_t bytes = 0;
    for (const Segmenter::Segment& segment : segmenter.segments()) {
      const ByteView blocks = Gathered(segmenter, table, segment, tensor).values;
      EXPECT_LE(blocks.size(), kMaxSegmentValueBytes);
      EXPECT_EQ(blocks.size(), segmenter.ValueBytes(table, segment));
      bytes += blocks.size();
      for (const ByteView::Fragment& fragment : blocks.fragments()) {
        EXPECT_GE(fragment.data(), reinterpret_cast<const char*>(tensor.data()));
        EXPECT_LE(fragment.data() + fragment.size(),
                  reinterpret_cast<const char*>(tensor.data() + elements));
      }
      std::vector<std::string> memory;
      segmenter.Scatter(table, segment, Refragment(blocks, random, memory), out.data());
    }
    EXPECT_EQ(bytes, elements * sizeof(float));
    EXPECT_EQ(out, tensor);
  }
}

TEST(SegmentsTest, SelectedBlocksAreContiguous) {
  const Table table = Dense(9 * kBlockElements + 3);
  const std::vector<uint64_t> blocks = {1, 4, 8, 9};
  std::vector<float> values(3 * kBlockElements + 3);
  std::iota(values.begin(), values.end(), 0.f);
  Segmenter segmenter;
  segmenter.Build(table, blocks, 3, true);
  std::map<uint64_t, std::vector<float>> got;
  for (const Segmenter::Segment& segment : segmenter.segments()) {
    const std::vector<float> floats =
        Unpack<float>(Gathered(segmenter, table, segment, values).values);
    size_t at = 0;
    for (const uint64_t block : Unpack<uint64_t>(segmenter.Keys(segment))) {
      const size_t count = BlockElements(table.elements(), block);
      got[block].assign(floats.begin() + at, floats.begin() + at + count);
      at += count;
    }
  }
  ASSERT_EQ(got.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(got[blocks[i]].size(), i < 3 ? kBlockElements : 3u);
    EXPECT_EQ(got[blocks[i]].front(), values[i * kBlockElements]);
    EXPECT_EQ(got[blocks[i]].back(), values[std::min((i + 1) * kBlockElements, values.size()) - 1]);
  }
}

// A push carries half the bytes: the sums, rounded once.
TEST(SegmentsTest, SixteenBitGradientsAreRoundedOnce) {
  std::mt19937_64 random(4);
  Segmenter segmenter;
  for (const ElementType type : {BFLOAT16, FLOAT16}) {
    for (const bool dense : {false, true}) {
      const Table table = dense ? Dense(9 * kBlockElements + 3) : Sparse(5);
      std::vector<uint64_t> keys(dense ? 0 : 4000);
      for (uint64_t& key : keys) key = random() % 1000;
      std::vector<float> gradients(dense ? table.elements() : keys.size() * 5);
      for (float& g : gradients) g = std::uniform_real_distribution<float>(-1, 1)(random);
      std::map<uint64_t, std::vector<float>> sums;
      for (size_t i = 0; i < keys.size(); ++i) {
        sums[keys[i]].resize(5);
        for (int j = 0; j < 5; ++j) sums[keys[i]][j] += gradients[i * 5 + j];
      }
      if (dense) {
        segmenter.Build(table, {}, 8, true);
      } else {
        segmenter.Build(table, keys, 8, false);
      }
      segmenter.AllocateGradients(table, type);
      size_t bytes = 0;
      for (const Segmenter::Segment& segment : segmenter.segments()) {
        const SegmentView gathered = Gathered(segmenter, table, segment, gradients, type);
        const ByteView& view = gathered.values;
        const int32_t exponent = gathered.exponent;
        float largest = 0;
        ASSERT_EQ(view.size(), segmenter.ValueBytes(table, segment, type));
        ASSERT_EQ(view.size(), segmenter.ValueBytes(table, segment) / 2);
        bytes += view.size();
        const std::vector<uint16_t> halves = Unpack<uint16_t>(view);
        size_t at = 0;
        for (const uint64_t key : Unpack<uint64_t>(segmenter.Keys(segment))) {
          const float* const expected = dense ? &gradients[key * kBlockElements] : sums[key].data();
          const size_t count = dense ? BlockElements(table.elements(), key) : 5;
          for (size_t j = 0; j < count; ++j) {
            const float scaled = std::ldexp(expected[j], -exponent);
            ASSERT_EQ(halves[at++], type == BFLOAT16 ? Bfloat16Of(scaled) : Float16Of(scaled));
            largest = std::max(largest, std::abs(expected[j]));
          }
        }
        EXPECT_EQ(exponent, ElementExponentFor(type, largest));
      }
      EXPECT_EQ(bytes, 2 * (dense ? table.elements() : sums.size() * 5));
    }
  }
}

// Each segment has the precision of FLOAT16, whether its gradients are tiny or beyond FLOAT16's
// range; a repetition gives the same bytes.
TEST(SegmentsTest, Float16KeepsSmallAndLargeGradients) {
  for (const float size : {1e-20f, 3e-8f, 1.0f, 1e6f, 1e30f}) {
    for (const bool dense : {false, true}) {
      const Table table = dense ? Dense(2 * kBlockElements + 3) : Sparse(3);
      const std::vector<uint64_t> keys = {4, 9, 11};
      std::vector<float> gradients(dense ? table.elements() : 9);
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = size * (i % 7 + 1) / 7;
      Segmenter segmenter;
      if (dense) {
        segmenter.Build(table, {}, 1, true);
      } else {
        segmenter.Build(table, keys, 1, true);
      }
      segmenter.AllocateGradients(table, FLOAT16);
      ASSERT_EQ(segmenter.segments().size(), 1u);
      std::vector<uint16_t> before;
      for (int time = 0; time < 2; ++time) {
        const Segmenter::Segment& segment = segmenter.segments()[0];
        const SegmentView gathered = Gathered(segmenter, table, segment, gradients, FLOAT16);
        const int32_t exponent = gathered.exponent;
        const std::vector<uint16_t> halves = Unpack<uint16_t>(gathered.values);
        std::vector<float> back(halves.size());
        DecodeElements(FLOAT16, halves.data(), halves.size(), back.data(), exponent);
        size_t at = 0;
        for (const uint64_t key : Unpack<uint64_t>(segmenter.Keys(segment))) {
          const size_t row = dense ? key * kBlockElements
                                   : (std::find(keys.begin(), keys.end(), key) - keys.begin()) * 3;
          for (size_t j = 0; j < (dense ? BlockElements(table.elements(), key) : 3); ++j) {
            ASSERT_NEAR(back[at++], gradients[row + j], gradients[row + j] / 2048);
          }
        }
        if (time == 1) {
          EXPECT_EQ(halves, before);
        }
        before = halves;
      }
    }
  }
}

TEST(SegmentsTest, PoolKeepsAtMostItsLimit) {
  SegmenterPool pool;
  std::vector<std::unique_ptr<Segmenter>> used;
  for (size_t i = 0; i < SegmenterPool::kMaxPooled + 10; ++i) used.push_back(pool.Get());
  std::set<Segmenter*> first;
  for (std::unique_ptr<Segmenter>& segmenter : used) first.insert(segmenter.get());
  for (std::unique_ptr<Segmenter>& segmenter : used) pool.Put(std::move(segmenter));
  // The pool reuses its Segmenters and drops those beyond its limit.
  std::vector<std::unique_ptr<Segmenter>> again;
  size_t reused = 0;
  for (size_t i = 0; i < SegmenterPool::kMaxPooled; ++i) {
    again.push_back(pool.Get());
    reused += first.count(again.back().get());
  }
  EXPECT_EQ(reused, SegmenterPool::kMaxPooled);
}

}  // namespace
}  // namespace pawl
