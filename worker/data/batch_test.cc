#include "worker/data/batch.h"

#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(BatchTest, SliceHasItsSamplesAndAllKeys) {
  Batch batch;
  batch.samples = 3;
  batch.numeric_count = 2;
  batch.field_sets[0].field_count = 2;
  batch.labels = {1, 0, 1};
  batch.numerics = {1, 2, 3, 4, 5, 6};
  batch.keys[0] = {70, 80, 90};
  batch.field_sets[0].field_begin = {0, 1, 3, 3, 4, 5, 6};
  batch.field_sets[0].entry_key = {0, 1, 2, 1, 0, 2};
  batch.field_sets[0].entry_value = {1, 2, 3, 4, 5, 6};
  Batch part;
  part.field_sets[0].entry_key = {9, 9, 9};
  SliceBatch(batch, {1, 3}, &part);
  EXPECT_EQ(part.samples, 2u);
  EXPECT_EQ(part.labels, (std::vector<float>{0, 1}));
  EXPECT_EQ(part.numerics, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(part.keys[0], batch.keys[0]);
  EXPECT_EQ(part.field_sets[0].field_begin, (std::vector<uint32_t>{0, 0, 1, 2, 3}));
  EXPECT_EQ(part.field_sets[0].entry_key, (std::vector<uint32_t>{1, 0, 2}));
  EXPECT_EQ(part.field_sets[0].entry_value, (std::vector<float>{4, 5, 6}));
}

TEST(BatchTest, BatchWithoutFieldsHasNoFieldList) {
  Batch batch;
  batch.samples = 2;
  batch.numeric_count = 1;
  batch.labels = {1, 0};
  batch.numerics = {1, 2};
  Batch part;
  SliceBatch(batch, {0, 1}, &part);
  EXPECT_EQ(part.numerics, (std::vector<float>{1}));
  EXPECT_TRUE(part.field_sets[0].field_begin.empty());
}

}  // namespace
}  // namespace pawl
