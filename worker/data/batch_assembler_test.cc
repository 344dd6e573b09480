#include "worker/data/batch_assembler.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"
#include "worker/data/feature_key.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

std::unique_ptr<Dataset> Load(const Data& spec, const std::string& name, const std::string& bytes) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Load(spec, path);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

Data Csv() {
  Data spec;
  spec.set_format(CSV);
  for (const char* name : {"y", "a", "b", "n", "m"})
    spec.mutable_csv()->add_columns()->set_name(name);
  spec.mutable_csv()->mutable_columns(0)->mutable_label();
  spec.mutable_csv()->mutable_columns(1)->mutable_categorical();
  spec.mutable_csv()->mutable_columns(2)->mutable_categorical();
  spec.mutable_csv()->mutable_columns(3)->mutable_numeric();
  spec.mutable_csv()->mutable_columns(4)->mutable_numeric();
  return spec;
}

Data Libsvm(uint32_t fields) {
  Data spec;
  spec.set_format(LIBSVM);
  spec.set_libsvm_fields(fields);
  return spec;
}

TEST(BatchAssemblerTest, CsvBatchHasKeysInOrderOfFirstAppearance) {
  const auto dataset = Load(Csv(), "t.csv", "y,a,b,n,m\n0,p,q,1,2\n1,r,q,3,4\n2,p,s,5,6\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({2, 1, 2}, &batch).ok());
  EXPECT_EQ(batch.samples, 3u);
  EXPECT_EQ(batch.numeric_count, 2u);
  EXPECT_EQ(batch.field_count, 2u);
  EXPECT_THAT(batch.labels, ElementsAre(2, 1, 2));
  EXPECT_THAT(batch.numerics, ElementsAre(5, 6, 3, 4, 5, 6));
  const FeatureKey a("a"), b("b");
  EXPECT_THAT(batch.keys, ElementsAre(a.OfCategory("p"), b.OfCategory("s"), a.OfCategory("r"),
                                      b.OfCategory("q")));
  EXPECT_THAT(batch.field_begin, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.entry_key, ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(batch.entry_value, ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(BatchAssemblerTest, LibsvmFieldsHaveOneEntryAndTheLastTheRest) {
  const auto dataset = Load(Libsvm(2), "t.libsvm", "1 5:0.5\n-1\n1 5:1 6:2 7:3 5:4\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({0, 1, 2}, &batch).ok());
  EXPECT_EQ(batch.field_count, 2u);
  EXPECT_THAT(batch.labels, ElementsAre(1, -1, 1));
  EXPECT_THAT(batch.keys, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.field_begin, ElementsAre(0, 1, 1, 1, 1, 2, 5));
  EXPECT_THAT(batch.entry_key, ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(batch.entry_value, ElementsAre(0.5, 1, 2, 3, 4));
}

TEST(BatchAssemblerTest, IdxBatchHasScaledPixels) {
  Data spec;
  spec.set_format(IDX);
  const std::string labels_path = std::string(std::getenv("TEST_TMPDIR")) + "/t-labels-idx1-ubyte";
  std::ofstream(labels_path, std::ios::binary) << std::string("\0\0\10\1\0\0\0\2\3\7", 10);
  const auto dataset = Load(spec, "t-images-idx3-ubyte",
                            std::string("\0\0\10\3\0\0\0\2\0\0\0\1\0\0\0\2\0\1\377\200", 20));
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({1, 0}, &batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(7, 3));
  EXPECT_THAT(batch.numerics, ElementsAre(1.0f, 128.0f / 255.0f, 0.0f, 1.0f / 255.0f));
  EXPECT_THAT(batch.keys, IsEmpty());
  EXPECT_THAT(batch.field_begin, ElementsAre(0));
  EXPECT_THAT(batch.entry_key, IsEmpty());
}

TEST(BatchAssemblerTest, BatchesAreIndependentOfEarlierOnes) {
  std::string text;
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    text += std::to_string(i);
    for (uint32_t j = random() % 6; j > 0; --j)
      text += " " + std::to_string(random() % 40) + ":" + std::to_string(random() % 3);
    text += "\n";
  }
  const auto dataset = Load(Libsvm(3), "random.libsvm", text);
  BatchAssembler reused(dataset->store());
  Batch batch;
  for (int round = 0; round < 200; ++round) {
    std::vector<uint64_t> samples(random() % 50);
    for (uint64_t& sample : samples) sample = random() % dataset->size();
    ASSERT_TRUE(reused.Assemble(samples, &batch).ok());
    BatchAssembler fresh_assembler(dataset->store());
    Batch fresh;
    ASSERT_TRUE(fresh_assembler.Assemble(samples, &fresh).ok());
    EXPECT_EQ(batch.labels, fresh.labels);
    EXPECT_EQ(batch.keys, fresh.keys);
    EXPECT_EQ(batch.field_begin, fresh.field_begin);
    EXPECT_EQ(batch.entry_key, fresh.entry_key);
    EXPECT_EQ(batch.entry_value, fresh.entry_value);
    // The keys are distinct and appear first in their order.
    uint32_t next = 0;
    for (const uint32_t key : batch.entry_key) {
      ASSERT_LE(key, next);
      if (key == next) ++next;
    }
    EXPECT_EQ(next, batch.keys.size());
    EXPECT_EQ(std::set<uint64_t>(batch.keys.begin(), batch.keys.end()).size(), batch.keys.size());
  }
}

TEST(BatchAssemblerTest, KeysComeInTheOrderOfPartitions) {
  std::string text;
  std::mt19937 random(6);
  for (int i = 0; i < 200; ++i) {
    text += std::to_string(i % 2);
    for (uint32_t j = random() % 6; j > 0; --j) text += " " + std::to_string(random() % 90) + ":1";
    text += "\n";
  }
  const auto dataset = Load(Libsvm(3), "sorted.libsvm", text);
  BatchAssembler plain(dataset->store());
  for (const uint32_t partitions : {1u, 7u, 16u}) {
    BatchAssembler sorted(dataset->store(), KeyOrder{.table = 3, .partitions = partitions});
    Batch expected, batch;
    for (uint64_t begin = 0; begin < 200; begin += 50) {
      ASSERT_TRUE(plain.AssembleRange({begin, begin + 50}, &expected).ok());
      ASSERT_TRUE(sorted.AssembleRange({begin, begin + 50}, &batch).ok());
      EXPECT_EQ(batch.labels, expected.labels);
      EXPECT_EQ(batch.field_begin, expected.field_begin);
      EXPECT_THAT(batch.keys, UnorderedElementsAreArray(expected.keys));
      ASSERT_EQ(batch.entry_key.size(), expected.entry_key.size());
      for (size_t e = 0; e < batch.entry_key.size(); ++e)
        ASSERT_EQ(batch.keys.at(batch.entry_key[e]), expected.keys[expected.entry_key[e]]);
      std::vector<uint32_t> partition_of;
      for (const uint64_t key : batch.keys) partition_of.push_back(PartitionOf(3, key, partitions));
      EXPECT_TRUE(std::is_sorted(partition_of.begin(), partition_of.end()));
    }
  }
}

TEST(BatchAssemblerTest, RangeAssemblesItsSamplesInOrder) {
  const auto dataset = Load(Csv(), "range.csv", "y,a,b,n,m\n0,p,q,1,2\n1,r,q,3,4\n2,p,s,5,6\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.AssembleRange(SampleRange{1, 3}, &batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(1, 2));
  ASSERT_TRUE(assembler.AssembleRange(SampleRange{1, 1}, &batch).ok());
  EXPECT_EQ(batch.samples, 0u);
  EXPECT_THAT(batch.keys, IsEmpty());
  EXPECT_THAT(batch.field_begin, ElementsAre(0));
}

TEST(BatchAssemblerTest, BatchAboveItsLimitIsRefused) {
  const auto dataset = Load(Libsvm(SampleStore::kMaxFields), "wide.libsvm", "1 1:1\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  const std::vector<uint64_t> samples(
      BatchAssembler::kMaxBatchEntries / SampleStore::kMaxFields + 1, 0);
  EXPECT_EQ(assembler.Assemble(samples, &batch).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pawl
