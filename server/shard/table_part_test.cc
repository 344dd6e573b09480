#include "server/shard/table_part.h"

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Floats = std::vector<float>;

constexpr size_t kTailFloats = 3;
constexpr char kAdam[] = "adam { learning_rate: 0.1 }";
constexpr char kSgd[] = "sgd { learning_rate: 1 }";

// Two blocks: one of kBlockElements and one of kTailFloats.
TablePart MakeBlocks(const std::string& optimizer,
                     const std::string& initializer = "constant { value: 10 }") {
  TableSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "id: 1 name: 'blocks' kind: DENSE element_type: FLOAT32 initializer {" + initializer +
          "} optimizer {" + optimizer + "}",
      &spec));
  spec.add_shape(kBlockElements + kTailFloats);
  auto schema = TableSchema::Create(spec, 7);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return TablePart(*schema);
}

std::shared_ptr<const TableSchema> RowSchema(uint32_t width, const std::string& optimizer) {
  TableSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "id: 1 name: 'rows' kind: SPARSE element_type: FLOAT32 initializer { normal { stddev: 1 } } "
      "optimizer {" +
          optimizer + "}",
      &spec));
  spec.set_row_width(width);
  auto schema = TableSchema::Create(spec, 7);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return *schema;
}

void Push(TablePart& part, uint64_t key, float value) {
  const Floats gradient(part.table().RowWidth(key), value);
  part.Apply(0, 1,
             {ByteView(&key, sizeof(key)),
              ByteView(gradient.data(), gradient.size() * sizeof(float)), nullptr});
}

std::vector<BlockLoan> Lend(const TablePart& part, std::vector<uint64_t> keys) {
  std::vector<BlockLoan> loans;
  part.Lend(ByteView(keys.data(), keys.size() * sizeof(uint64_t)), loans);
  return loans;
}

Floats Copy(const BlockLoan& loan) { return Floats(loan.data(), loan.data() + loan.size()); }

TEST(TablePart, LendsBlocksWithoutCopying) {
  TablePart part = MakeBlocks(kSgd);
  Push(part, 1, 1);
  const auto first = Lend(part, {1});
  const auto second = Lend(part, {1});
  EXPECT_EQ(first[0].data(), second[0].data());
  EXPECT_EQ(Copy(first[0]), Floats(kTailFloats, 9));
}

TEST(TablePart, LendsInKeyOrderAndAbsentBlocksAsInitialValues) {
  TablePart part = MakeBlocks(kSgd, "uniform { low: -1 high: 1 }");
  Floats initial(kBlockElements);
  part.table().initializer().Fill(0, 0, kBlockElements, initial.data());
  Push(part, 1, 1);
  const auto loans = Lend(part, {1, 0});
  ASSERT_EQ(loans.size(), 2u);
  EXPECT_EQ(loans[0].size(), kTailFloats);
  EXPECT_EQ(Copy(loans[1]), initial);
  EXPECT_EQ(part.row_count(), 1u);
}

TEST(TablePart, PushDoesNotChangeALoan) {
  TablePart part = MakeBlocks(kSgd);
  Push(part, 0, 1);
  const auto before = Lend(part, {0});
  Push(part, 0, 1);
  const auto between = Lend(part, {0});
  Push(part, 0, 1);
  EXPECT_EQ(Copy(before[0]), Floats(kBlockElements, 9));
  EXPECT_EQ(Copy(between[0]), Floats(kBlockElements, 8));
  EXPECT_EQ(Copy(Lend(part, {0})[0]), Floats(kBlockElements, 7));
}

// Slots and the number of updates stay with the weights, whether or not these are lent.
TEST(TablePart, LendingChangesNoBits) {
  TablePart part = MakeBlocks(kAdam);
  TablePart never_lent = MakeBlocks(kAdam);
  std::vector<std::vector<BlockLoan>> kept;
  for (int push = 0; push < 8; ++push) {
    Push(part, 0, 0.1f * push);
    Push(never_lent, 0, 0.1f * push);
    auto loans = Lend(part, {0, 1});
    if (push % 3 > 0) kept.push_back(std::move(loans));
    ASSERT_EQ(part.Digest(), never_lent.Digest()) << "push " << push;
  }
}

// Rows of several runs, created and updated, against rows that are updated and read one by one.
TEST(TablePart, ManyRowsEqualSingleRows) {
  std::mt19937_64 random(5);
  for (const uint32_t width : {1, 3, 16, 17, 33, 100, 1000}) {
    for (const char* const optimizer : {kSgd, kAdam, "adagrad { learning_rate: 0.05 }",
                                        "rowwise_adagrad { learning_rate: 0.1 }"}) {
      SCOPED_TRACE(testing::Message() << "width " << width << ", " << optimizer);
      const auto schema = RowSchema(width, optimizer);
      TablePart part(schema), reference(schema);
      const uint64_t key_count = width < 1000 ? 700 : 150;
      const auto any_key = [&] { return random() % key_count * 0x9e3779b97f4a7c15u; };
      const HeldTable empty = part.Hold();
      for (int step = 0; step < 4; ++step) {
        GradientSum sum(schema);
        std::map<uint64_t, Floats> sums;
        std::vector<std::pair<std::vector<uint64_t>, Floats>> pushes(step);
        for (auto& [keys, values] : pushes) {
          keys.resize(key_count / 2);
          for (uint64_t& key : keys) {
            key = any_key();
            Floats& of_key = sums.try_emplace(key, Floats(width)).first->second;
            for (float& total : of_key) {
              values.push_back(static_cast<float>(random() % 64) / 16 - 2);
              total += values.back();
            }
          }
          sum.AddLater({ByteView(keys.data(), keys.size() * sizeof(uint64_t)),
                        ByteView(values.data(), values.size() * sizeof(float)), nullptr});
        }
        const HeldTable held = part.Hold();
        const uint32_t digest = held.Digest();
        part.Apply(step, 0.5f, sum);
        for (const auto& [key, gradient] : sums) {
          reference.Apply(step, 0.5f,
                          {ByteView(&key, sizeof key),
                           ByteView(gradient.data(), width * sizeof(float)), nullptr});
        }
        EXPECT_EQ(part.row_count(), reference.row_count());
        EXPECT_EQ(part.Digest(), reference.Digest());
        EXPECT_EQ(held.Digest(), digest);
        for (const size_t count : {0, 1, 15, 16, 17, 32, 33, 64, 65, 300}) {
          std::vector<uint64_t> keys(count);
          for (uint64_t& key : keys) key = random() % 3 == 0 ? random() : any_key();
          // One byte past an aligned address.
          std::vector<char> read(1 + count * width * sizeof(float));
          part.Read(ByteView(keys.data(), count * sizeof(uint64_t)), &read[1]);
          for (size_t i = 0; i < count; ++i) {
            Floats expected(width), actual(width);
            reference.Read(ByteView(&keys[i], sizeof(uint64_t)),
                           reinterpret_cast<char*>(expected.data()));
            std::memcpy(actual.data(), &read[1 + i * width * sizeof(float)], width * sizeof(float));
            ASSERT_EQ(actual, expected) << "row " << i << " of " << count;
          }
        }
      }
      EXPECT_EQ(empty.row_count(), 0u);
    }
  }
}

TEST(TablePart, CountsWeightsSlotsAndUpdatesOfBlocks) {
  TablePart part = MakeBlocks(kAdam);
  Push(part, 1, 1);
  EXPECT_EQ(part.row_count(), 1u);
  EXPECT_EQ(part.parameter_bytes(), (3 * kTailFloats + 1) * sizeof(float));
  const std::vector<uint64_t> keys = {0, 1};
  EXPECT_EQ(part.CountMissing(ByteView(keys.data(), sizeof(uint64_t) * 2)), 1u);
}

TEST(TablePart, RestoreBestRemovesBlocksCreatedSince) {
  TablePart part = MakeBlocks(kAdam);
  Push(part, 0, 1);
  const uint32_t digest = part.Digest();
  part.KeepBest();
  const auto loan = Lend(part, {0});
  Push(part, 0, 1);
  Push(part, 1, 1);
  EXPECT_NE(part.Digest(), digest);
  for (int times = 0; times < 2; ++times) {
    part.RestoreBest();
    EXPECT_EQ(part.Digest(), digest);
    EXPECT_EQ(part.row_count(), 1u);
    EXPECT_EQ(part.parameter_bytes(), (3 * kBlockElements + 1) * sizeof(float));
    EXPECT_EQ(Copy(loan[0]), Copy(Lend(part, {0})[0]));
    Push(part, 0, 1);
  }
}

}  // namespace
}  // namespace pawl
