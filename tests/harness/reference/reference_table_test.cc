// Compares the reference with the servers' state machine. Both implement one specification, so the
// reference is useful only if they agree.
#include "tests/harness/reference/reference_table.h"

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/job_specs.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/shard/partition.h"
#include "tests/harness/reference/reference_initializer.h"

namespace pawl {
namespace {

constexpr uint64_t kSeed = 77;
constexpr uint32_t kPartitions = 5;
constexpr uint32_t kRanks = 3;

TableSpec Spec(const std::string& text) {
  TableSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  spec.set_id(2);
  spec.set_element_type(FLOAT32);  // as the scheduler sets it for the servers
  return spec;
}

// The servers' partitions in one process.
class Servers {
 public:
  Servers(const TableSpec& spec, float clip_global_norm) : clip_global_norm_(clip_global_norm) {
    const PartitionOptions options{.job_seed = kSeed,
                                   .partitions = kPartitions,
                                   .logical_workers = kRanks,
                                   .consistency = ConsistencyOf(SYNC),
                                   .clip_global_norm = clip_global_norm};
    schema_ = TableSchema::Create(spec, kSeed).value();
    for (uint32_t p = 0; p < kPartitions; ++p) {
      partitions_.push_back(std::make_unique<Partition>(p, options));
      EXPECT_TRUE(partitions_.back()->CreateTable(schema_).ok());
    }
  }

  void Push(uint32_t rank, uint64_t step, uint64_t key, const float* gradient, size_t width) {
    Partition& partition = *partitions_[PartitionOf(schema_->id(), key, kPartitions)];
    // Early pushes are kept, so they own their memory.
    auto memory = std::make_shared<std::pair<uint64_t, std::vector<float>>>(
        key, std::vector<float>(gradient, gradient + width));
    Gradient pushed;
    pushed.keys.Append(&memory->first, sizeof(key));
    pushed.values.Append(memory->second.data(), width * sizeof(float));
    pushed.owner = memory;
    const Sender sender = {Sender::Kind::kLogicalWorker, rank, 1, step};
    uint64_t& ordinal = ordinals_[{rank, partition.index()}];
    EXPECT_TRUE(partition.Push(sender, ordinal++, schema_->id(), std::move(pushed)).ok());
  }
  void EndStep(uint64_t step) {
    ordinals_.clear();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (auto& partition : partitions_) {
        EXPECT_TRUE(
            partition->EndStep({Sender::Kind::kLogicalWorker, rank, 1, step}, std::nullopt).ok());
      }
    }
    if (clip_global_norm_ == 0) return;
    double squares = 0;
    for (auto& partition : partitions_) squares += partition->StepSquares(step);
    const double norm = std::sqrt(squares);
    const float scale =
        norm > clip_global_norm_ ? static_cast<float>(clip_global_norm_ / norm) : 1.0f;
    scaled_steps_ += scale < 1.0f;
    for (auto& partition : partitions_) {
      EXPECT_TRUE(partition->CloseStep({Sender::Kind::kLogicalWorker, 0, 1, step}, scale).ok());
    }
  }
  int scaled_steps() const { return scaled_steps_; }
  std::map<uint32_t, ReferenceTable::PartitionRecord> Digests() const {
    std::map<uint32_t, ReferenceTable::PartitionRecord> records;
    for (auto& partition : partitions_) {
      const TablePart* part = partition->FindTable(schema_->id());
      if (part->row_count() > 0) records[partition->index()] = {part->Digest(), part->row_count()};
    }
    return records;
  }

 private:
  const float clip_global_norm_;
  int scaled_steps_ = 0;
  std::shared_ptr<const TableSchema> schema_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> ordinals_;
};

constexpr const char* kOptimizers[] = {
    "optimizer { sgd { learning_rate: 0.1 } }",
    "optimizer { adagrad { learning_rate: 0.05 } }",
    "optimizer { adagrad { learning_rate: 0.05 initial_accumulator: 1 epsilon: 1e-6 } l2: 0.001 }",
    "optimizer { adam { learning_rate: 0.01 } }",
    "optimizer { adam { learning_rate: 0.01 beta1: 0.8 beta2: 0.99 epsilon: 1e-6 } clip_value: 0.5 "
    "l1: 0.01 }",
    "optimizer { sgd { learning_rate: 0.1 } schedule { step { every_steps: 2 gamma: 0.3 } "
    "warmup_steps: 4 } }",
};
constexpr const char* kInitializers[] = {
    "",
    "initializer { constant { value: 0.5 } }",
    "initializer { uniform { low: -1 high: 2 } }",
    "initializer { normal { mean: 0.1 stddev: 0.01 } }",
    "initializer { truncated_normal { stddev: 1 } }",
    "initializer { xavier {} }",
    "initializer { normal { stddev: 1 } zero_from: 18 }",
};

constexpr uint64_t kSteps = 6;

// Returns the number of steps that were scaled down.
int ExpectSameBits(const TableSpec& spec, const std::vector<uint64_t>& keys,
                   float clip_global_norm = 0) {
  SCOPED_TRACE(spec.ShortDebugString());
  std::vector<ReferenceTable> tables;
  auto created = ReferenceTable::Create(spec, kSeed);
  EXPECT_TRUE(created.ok()) << created.status();
  if (!created.ok()) return 0;
  tables.push_back(*std::move(created));
  ReferenceTable* const reference = &tables[0];
  Servers servers(spec, clip_global_norm);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (uint64_t step = 0; step < kSteps; ++step) {
    // In reverse order on the servers, which must restore the order.
    std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> gradients;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (const uint64_t key : keys) {
        if (spec.kind() == SPARSE && random() % 2 == 0) continue;
        std::vector<float>& gradient = gradients[{rank, key}];
        gradient.resize(reference->width());
        for (float& value : gradient) value = normal(random);
      }
    }
    for (const auto& [name, gradient] : gradients) reference->Add(name.second, gradient.data());
    reference->CloseStep(step, kRanks,
                         ReferenceClipScale(tables, kRanks, kPartitions, clip_global_norm));
    for (auto it = gradients.rbegin(); it != gradients.rend(); ++it) {
      if (spec.kind() == SPARSE) {
        servers.Push(it->first.first, step, it->first.second, it->second.data(), it->second.size());
        continue;
      }
      for (uint64_t block = 0; block * kBlockElements < it->second.size(); ++block) {
        servers.Push(it->first.first, step, block, it->second.data() + block * kBlockElements,
                     std::min<size_t>(kBlockElements, it->second.size() - block * kBlockElements));
      }
    }
    servers.EndStep(step);
  }
  const auto expected = servers.Digests();
  const auto actual = reference->Digests(kPartitions);
  EXPECT_EQ(actual.size(), expected.size());
  EXPECT_FALSE(actual.empty());
  for (const auto& [partition, record] : expected) {
    if (!actual.contains(partition)) continue;
    EXPECT_EQ(actual.at(partition).crc32c, record.crc32c) << "partition " << partition;
    EXPECT_EQ(actual.at(partition).rows, record.rows) << "partition " << partition;
  }
  return servers.scaled_steps();
}

TEST(ReferenceTableTest, SparseRowsEqualTheServers) {
  std::vector<uint64_t> keys = {0, UINT64_MAX, uint64_t{1} << 63};
  for (uint64_t i = 1; i < 40; ++i) keys.push_back(Mix64(i));
  int tables = 0;
  for (const char* optimizer : kOptimizers) {
    for (const char* initializer : kInitializers) {
      ExpectSameBits(Spec(absl::StrCat("name: 'rows/", tables++, "' kind: SPARSE row_width: 19 ",
                                       optimizer, initializer)),
                     keys);
    }
  }
}

TEST(ReferenceTableTest, TensorBlocksEqualTheServers) {
  for (const char* optimizer : kOptimizers) {
    // Two full blocks and a short one.
    ExpectSameBits(
        Spec(absl::StrCat("name: 'tensor' kind: DENSE shape: [131, 1003] initializer { xavier {} }",
                          optimizer)),
        {0});
  }
}

TEST(ReferenceTableTest, ScaledStepsEqualTheServers) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 1; i < 40; ++i) keys.push_back(Mix64(i));
  for (const char* optimizer : kOptimizers) {
    EXPECT_EQ(ExpectSameBits(
                  Spec(absl::StrCat("name: 'rows' kind: SPARSE row_width: 19 ", optimizer)), keys,
                  /*clip_global_norm=*/2.0f),
              static_cast<int>(kSteps));
    EXPECT_EQ(ExpectSameBits(
                  Spec(absl::StrCat("name: 'tensor' kind: DENSE shape: [131, 1003] ", optimizer)),
                  {0}, /*clip_global_norm=*/3.0f),
              static_cast<int>(kSteps));
  }
}

TEST(ReferenceTableTest, ReadingCreatesNoRow) {
  auto table = ReferenceTable::Create(Spec("name: 't' kind: SPARSE row_width: 3 optimizer { sgd {} "
                                           "} initializer { constant { value: 2 } }"),
                                      kSeed);
  std::vector<float> row;
  table->Read(9, row);
  EXPECT_EQ(row, std::vector<float>({2, 2, 2}));
  EXPECT_TRUE(table->Digests(kPartitions).empty());
}

TEST(ReferenceTableTest, DigestMatchesItsSpecification) {
  // One row of one element, with its records written by hand.
  TableSpec spec =
      Spec("name: 'w' kind: SPARSE row_width: 1 optimizer { sgd { learning_rate: 1 } }");
  std::vector<ReferenceTable> tables;
  tables.push_back(*ReferenceTable::Create(spec, kSeed));
  EXPECT_EQ(ReferenceDigest(tables, 1), 0u);
  const float gradient = -1.0f;
  tables[0].Add(5, &gradient);
  tables[0].CloseStep(0, 1);
  const unsigned char row[] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f};
  const uint32_t row_crc = Crc32c(0, row, sizeof(row));
  unsigned char record[] = {'w', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
  for (int i = 0; i < 4; ++i) record[6 + i] = static_cast<unsigned char>(row_crc >> (8 * i));
  EXPECT_EQ(ReferenceDigest(tables, 1), Crc32c(0, record, sizeof(record)));
}

TEST(ReferenceTableTest, UnsupportedSpecIsRefused) {
  EXPECT_EQ(ReferenceTable::Create(
                Spec("name: 't' kind: SPARSE row_width: 3 optimizer { ftrl {} }"), kSeed)
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace pawl
