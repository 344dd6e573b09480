#include "worker/dense/dense_layout.h"

#include <memory>

#include "client_lib/base/partitioner.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

std::unique_ptr<const UpdateRule> Rule(bool adam) {
  Optimizer spec;
  if (adam) {
    spec.mutable_adam()->set_learning_rate(0.1f);
  } else {
    spec.mutable_rowwise_adagrad()->set_learning_rate(0.1f);
  }
  return *UpdateRule::Create(spec);
}

TEST(DenseLayoutTest, SmallTablesAreFusedFromTheLastOneOn) {
  const auto rule = Rule(/*adam=*/true);
  const DenseLayout layout({10, 20, 30, 40}, *rule, 70 * sizeof(float));
  ASSERT_EQ(layout.buckets().size(), 2u);
  const DenseBucket& late = layout.buckets()[1];
  EXPECT_EQ(late.first_table, 2u);
  EXPECT_EQ(late.end_table, 4u);
  EXPECT_EQ(late.begin, 30u);
  EXPECT_EQ(late.count, 70u);
  EXPECT_EQ(late.slots_begin, 60u);
  EXPECT_EQ(late.slots_count, 140u);
  EXPECT_EQ(layout.buckets()[0].count, 30u);
  EXPECT_EQ(layout.first_bucket(1), 0u);
  EXPECT_EQ(layout.end_bucket(1), 1u);
  EXPECT_EQ(layout.first_bucket(2), 1u);
}

TEST(DenseLayoutTest, DefaultSizeGivesAboutThirtyBuckets) {
  EXPECT_EQ(DefaultBucketBytes({1000}), 256u << 10);
  EXPECT_EQ(DefaultBucketBytes({1 << 20, 1 << 20, 1 << 20, 1 << 20}), 512u << 10);
  EXPECT_EQ(DefaultBucketBytes({1 << 30}), 1u << 20);
  const auto rule = Rule(/*adam=*/true);
  EXPECT_EQ(DenseLayout({1 << 22}, *rule, 0).buckets().size(), 32u);
  EXPECT_EQ(DenseLayout({1 << 24}, *rule, 0).buckets().size(), 64u);
  EXPECT_EQ(DenseLayout({10, 20, 30}, *rule, 0).buckets().size(), 1u);
}

TEST(DenseLayoutTest, LargeTablesAreSplitBetweenBlocks) {
  const auto rule = Rule(/*adam=*/false);
  const DenseLayout layout({5, 3 * kBlockElements + 7}, *rule, 2 * kBlockElements * sizeof(float));
  // The last one has the short block.
  ASSERT_EQ(layout.buckets().size(), 3u);
  EXPECT_EQ(layout.buckets()[2].count, kBlockElements + 7);
  EXPECT_EQ(layout.buckets()[1].count, 2 * kBlockElements);
  EXPECT_EQ(layout.buckets()[0].count, 5u);
  EXPECT_EQ(layout.first_bucket(1), 1u);
  EXPECT_EQ(layout.end_bucket(1), 3u);
  // One slot for each block.
  EXPECT_EQ(layout.slots(), 5u);
  EXPECT_EQ(layout.table_slots_begin(1), 1u);
  EXPECT_EQ(layout.table_slots(1), 4u);
}

TEST(DenseLayoutTest, BucketsAndBlocksCoverEverythingOnce) {
  const auto rule = Rule(/*adam=*/true);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1024}, uint64_t{1} << 20, uint64_t{1} << 30}) {
    const DenseLayout layout({1, 70000, 3, 1, 200000, 17}, *rule, bytes);
    size_t next = 0;
    size_t next_slot = 0;
    size_t next_block = 0;
    for (const DenseBucket& bucket : layout.buckets()) {
      EXPECT_EQ(bucket.begin, next);
      EXPECT_EQ(bucket.slots_begin, next_slot);
      EXPECT_EQ(bucket.first_block, next_block);
      next += bucket.count;
      next_slot += bucket.slots_count;
      next_block = bucket.end_block;
    }
    EXPECT_EQ(next, layout.elements());
    EXPECT_EQ(next_slot, layout.slots());
    EXPECT_EQ(next_block, layout.blocks().size());
  }
}

}  // namespace
}  // namespace pawl
