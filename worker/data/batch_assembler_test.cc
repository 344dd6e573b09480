#include "worker/data/batch_assembler.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
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
  EXPECT_EQ(batch.field_sets[0].field_count, 2u);
  EXPECT_THAT(batch.labels, ElementsAre(2, 1, 2));
  EXPECT_THAT(batch.numerics, ElementsAre(5, 6, 3, 4, 5, 6));
  const FeatureKey a("a"), b("b");
  EXPECT_THAT(batch.keys[0], ElementsAre(a.OfCategory("p"), b.OfCategory("s"), a.OfCategory("r"),
                                         b.OfCategory("q")));
  EXPECT_THAT(batch.field_sets[0].field_begin, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.field_sets[0].entry_key, ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(batch.field_sets[0].entry_value, ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(BatchAssemblerTest, LibsvmFieldsHaveOneEntryAndTheLastTheRest) {
  const auto dataset = Load(Libsvm(2), "t.libsvm", "1 5:0.5\n-1\n1 5:1 6:2 7:3 5:4\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({0, 1, 2}, &batch).ok());
  EXPECT_EQ(batch.field_sets[0].field_count, 2u);
  EXPECT_THAT(batch.labels, ElementsAre(1, -1, 1));
  EXPECT_THAT(batch.keys[0], ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.field_sets[0].field_begin, ElementsAre(0, 1, 1, 1, 1, 2, 5));
  EXPECT_THAT(batch.field_sets[0].entry_key, ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(batch.field_sets[0].entry_value, ElementsAre(0.5, 1, 2, 3, 4));
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
  EXPECT_THAT(batch.keys[0], IsEmpty());
  EXPECT_THAT(batch.field_sets[0].field_begin, ElementsAre(0));
  EXPECT_THAT(batch.field_sets[0].entry_key, IsEmpty());
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
    EXPECT_EQ(batch.keys[0], fresh.keys[0]);
    EXPECT_EQ(batch.field_sets[0].field_begin, fresh.field_sets[0].field_begin);
    EXPECT_EQ(batch.field_sets[0].entry_key, fresh.field_sets[0].entry_key);
    EXPECT_EQ(batch.field_sets[0].entry_value, fresh.field_sets[0].entry_value);
    // The keys are distinct and appear first in their order.
    uint32_t next = 0;
    for (const uint32_t key : batch.field_sets[0].entry_key) {
      ASSERT_LE(key, next);
      if (key == next) ++next;
    }
    EXPECT_EQ(next, batch.keys[0].size());
    EXPECT_EQ(std::set<uint64_t>(batch.keys[0].begin(), batch.keys[0].end()).size(),
              batch.keys[0].size());
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
    BatchAssembler sorted(dataset->store(),
                          {FieldLayout::Single(dataset->shape().field_count), {{3, partitions}}});
    Batch expected, batch;
    for (uint64_t begin = 0; begin < 200; begin += 50) {
      std::vector<uint64_t> samples(50);
      std::iota(samples.begin(), samples.end(), begin);
      ASSERT_TRUE(plain.Assemble(samples, &expected).ok());
      ASSERT_TRUE(sorted.Assemble(samples, &batch).ok());
      EXPECT_EQ(batch.labels, expected.labels);
      EXPECT_EQ(batch.field_sets[0].field_begin, expected.field_sets[0].field_begin);
      EXPECT_THAT(batch.keys[0], UnorderedElementsAreArray(expected.keys[0]));
      ASSERT_EQ(batch.field_sets[0].entry_key.size(), expected.field_sets[0].entry_key.size());
      for (size_t e = 0; e < batch.field_sets[0].entry_key.size(); ++e)
        ASSERT_EQ(batch.keys[0].at(batch.field_sets[0].entry_key[e]),
                  expected.keys[0][expected.field_sets[0].entry_key[e]]);
      std::vector<uint32_t> partition_of;
      for (const uint64_t key : batch.keys[0])
        partition_of.push_back(PartitionOf(3, key, partitions));
      EXPECT_TRUE(std::is_sorted(partition_of.begin(), partition_of.end()));
    }
  }
}

// The categories and weights of a sample's field.
std::vector<std::pair<uint64_t, float>> EntriesOf(const Batch& batch, FieldLayout::Place place,
                                                  uint32_t sample) {
  const FieldSet& set = batch.field_sets[place.field_set];
  std::vector<std::pair<uint64_t, float>> entries;
  const size_t field = size_t{sample} * set.field_count + place.index;
  for (uint32_t e = set.field_begin[field]; e < set.field_begin[field + 1]; ++e)
    entries.emplace_back(batch.keys[set.key_set][set.entry_key[e]], set.entry_value[e]);
  return entries;
}

// Three fields with up to three entries each; some keys are in several fields.
void FillWithLists(std::mt19937& random, SampleStore* store) {
  store->shape.field_count = 3;
  store->sample_begin.push_back(0);
  for (int s = 0; s < 80; ++s) {
    store->labels.push_back(static_cast<float>(s));
    for (int f = 0; f < 3; ++f) {
      const uint32_t count = random() % 4;
      for (uint32_t e = 0; e < count; ++e) store->AddEntry(random() % 20);
      store->field_counts.push_back(static_cast<uint16_t>(count));
    }
    store->sample_begin.push_back(store->entry_count());
  }
}

TEST(BatchAssemblerTest, EachTableGetsTheKeysOfItsFields) {
  FieldLayout layout;
  layout.key_sets.resize(2);
  layout.field_sets = {
      {0, FieldPooling::kSum, {0}}, {1, FieldPooling::kMean, {1}}, {1, FieldPooling::kNone, {2}}};
  for (const bool interns : {true, false}) {
    std::mt19937 random(9);
    SampleStore store(uint64_t{1} << 30, interns);
    FillWithLists(random, &store);
    BatchAssembler plain(store), assembler(store, {layout, {{3, 8}, {4, 8}}});
    for (int round = 0; round < 20; ++round) {
      std::vector<uint64_t> samples(30);
      for (uint64_t& sample : samples) sample = random() % store.size();
      Batch whole, batch;
      ASSERT_TRUE(plain.Assemble(samples, &whole).ok());
      ASSERT_TRUE(assembler.Assemble(samples, &batch).ok());
      ASSERT_TRUE(CheckBatch(batch, store.shape, layout).ok());
      std::set<uint64_t> keys[2];
      for (uint32_t s = 0; s < batch.samples; ++s) {
        for (uint32_t field = 0; field < 3; ++field) {
          auto expected = EntriesOf(whole, {0, field}, s);
          for (auto& [key, value] : expected) {
            keys[field == 0 ? 0 : 1].insert(key);
            if (field == 1) value = 1.0f / static_cast<float>(expected.size());
          }
          EXPECT_EQ(EntriesOf(batch, layout.PlaceOf(field), s), expected);
        }
      }
      for (const size_t k : {0, 1}) {
        EXPECT_THAT(batch.keys[k], UnorderedElementsAreArray(keys[k]));
        std::vector<uint32_t> partition_of;
        for (const uint64_t key : batch.keys[k])
          partition_of.push_back(PartitionOf(static_cast<uint32_t>(k) + 3, key, 8));
        EXPECT_TRUE(std::is_sorted(partition_of.begin(), partition_of.end()));
      }
    }
  }
}

TEST(BatchAssemblerTest, LabelsAndWeightsFollowTheirSamples) {
  SampleStore store(uint64_t{1} << 30);
  store.shape = {.numeric_count = 1, .field_count = 0, .label_count = 2};
  store.labels = {0, 1, 2, 3, 4, 5};
  store.sample_weights = {0.5f, 1, 2};
  store.numerics = {7, 8, 9};
  ASSERT_EQ(store.size(), 3u);
  BatchAssembler assembler(store);
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({2, 0}, &batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(4, 5, 0, 1));
  EXPECT_THAT(batch.weights, ElementsAre(2, 0.5f));
  Batch part;
  SliceBatch(batch, {1, 2}, &part);
  EXPECT_THAT(part.labels, ElementsAre(0, 1));
  EXPECT_THAT(part.weights, ElementsAre(0.5f));
}

TEST(BatchAssemblerTest, BatchReplacesTheOneBefore) {
  const auto dataset = Load(Csv(), "range.csv", "y,a,b,n,m\n0,p,q,1,2\n1,r,q,3,4\n2,p,s,5,6\n");
  BatchAssembler assembler(dataset->store());
  Batch batch;
  ASSERT_TRUE(assembler.Assemble({1, 2}, &batch).ok());
  EXPECT_THAT(batch.labels, ElementsAre(1, 2));
  ASSERT_TRUE(assembler.Assemble({}, &batch).ok());
  EXPECT_EQ(batch.samples, 0u);
  EXPECT_THAT(batch.keys[0], IsEmpty());
  EXPECT_THAT(batch.field_sets[0].field_begin, ElementsAre(0));
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
