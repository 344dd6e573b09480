#include "server/shard/table_schema.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 4;

TableSpec SparseSpec(uint32_t width) { return WithSgd(SparseTableSpec("rows", width, 1)); }

TableSpec DenseSpec(const std::vector<uint64_t>& shape) {
  return WithSgd(DenseTableSpec("rows", shape, 1));
}

absl::Status Check(const TableSpec& spec, std::vector<uint64_t> keys, std::vector<float> values,
                   ElementType type = FLOAT32, int partition = -1, int32_t exponent = 0) {
  const auto schema = TableSchema::Create(spec, 1);
  EXPECT_TRUE(schema.ok()) << schema.status();
  if (partition < 0) partition = keys.empty() ? 0 : PartitionOf(1, keys[0], kPartitions);
  return (*schema)->CheckGradient(type, exponent, ByteView(keys.data(), keys.size() * 8),
                                  ByteView(values.data(), values.size() * 4), partition,
                                  kPartitions);
}

TEST(TableSchema, RefusesInvalidSpecs) {
  const auto code = [](TableSpec spec) { return TableSchema::Create(spec, 1).status().code(); };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(SparseSpec(0)), invalid);
  EXPECT_EQ(code(SparseSpec(kMaxRowWidth + 1)), invalid);
  EXPECT_EQ(code(SparseSpec(kMaxRowWidth)), absl::StatusCode::kOk);
  EXPECT_EQ(code(DenseSpec({})), invalid);
  EXPECT_EQ(code(DenseSpec({3, 0})), invalid);
  EXPECT_EQ(code(DenseSpec({uint64_t{1} << 40, uint64_t{1} << 40})), invalid);
  EXPECT_EQ(code(DenseSpec({1, 1, 1, 1, 1, 1, 1, 1, 1})), invalid);
  TableSpec no_optimizer = SparseSpec(4);
  no_optimizer.clear_optimizer();
  EXPECT_EQ(code(no_optimizer), invalid);
  TableSpec no_kind = SparseSpec(4);
  no_kind.clear_kind();
  EXPECT_EQ(code(no_kind), invalid);
}

TEST(TableSchema, TheLastBlockIsShort) {
  const auto schema = TableSchema::Create(DenseSpec({2, kBlockElements}), 1);
  EXPECT_EQ((*schema)->BlockCount(), 2u);
  const auto longer = TableSchema::Create(DenseSpec({2 * kBlockElements + 5}), 1);
  EXPECT_EQ((*longer)->BlockCount(), 3u);
  EXPECT_EQ((*longer)->RowWidth(1), kBlockElements);
  EXPECT_EQ((*longer)->RowWidth(2), 5u);
}

TEST(TableSchema, RefusesWrongLengthsAndTypes) {
  EXPECT_TRUE(Check(SparseSpec(2), {5}, {1, 2}).ok());
  EXPECT_EQ(Check(SparseSpec(2), {5}, {1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(SparseSpec(2), {5}, {1, 2, 3}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Check(SparseSpec(2), {5}, {1, 2}, ELEMENT_TYPE_UNSPECIFIED).ok());
  EXPECT_EQ(Check(SparseSpec(2), {5}, {1, 2}, static_cast<ElementType>(4)).code(),
            absl::StatusCode::kInvalidArgument);
  // Four bytes per element here make two elements there.
  for (const ElementType type : {BFLOAT16, FLOAT16}) {
    EXPECT_TRUE(Check(SparseSpec(4), {5}, {1, 2}, type).ok());
    EXPECT_EQ(Check(SparseSpec(2), {5}, {1, 2}, type).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Check(SparseSpec(3), {5}, {1, 2}, type).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Check(DenseSpec({14}), {0}, {1, 2, 3, 4, 5, 6, 7}, type).ok());
  }
  EXPECT_TRUE(Check(SparseSpec(4), {5}, {1, 2}, FLOAT16, -1, -125).ok());
  EXPECT_TRUE(Check(SparseSpec(4), {5}, {1, 2}, FLOAT16, -1, 112).ok());
  EXPECT_EQ(Check(SparseSpec(4), {5}, {1, 2}, FLOAT16, -1, 113).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(SparseSpec(4), {5}, {1, 2}, BFLOAT16, -1, -1).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(SparseSpec(2), {5}, {1, 2}, FLOAT32, -1, 1).code(),
            absl::StatusCode::kInvalidArgument);
  const uint32_t wrong = (PartitionOf(1, 5, kPartitions) + 1) % kPartitions;
  EXPECT_EQ(Check(SparseSpec(2), {5}, {1, 2}, FLOAT32, wrong).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Check(DenseSpec({7}), {1}, {1, 2, 3, 4, 5, 6, 7}).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Check(DenseSpec({7}), {0}, {1, 2, 3, 4, 5, 6}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Check(DenseSpec({7}), {0}, {1, 2, 3, 4, 5, 6, 7}).ok());
}

TEST(TableSchema, FindsANonFiniteValueAnywhere) {
  constexpr size_t kWidth = 67;  // whole vectors of every size, and a tail
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (size_t i = 0; i < kWidth; ++i) {
      std::vector<float> values(kWidth, std::numeric_limits<float>::max());
      EXPECT_TRUE(Check(SparseSpec(kWidth), {5}, values).ok());
      values[i] = bad;
      EXPECT_EQ(Check(SparseSpec(kWidth), {5}, values).code(), absl::StatusCode::kInvalidArgument)
          << i;
    }
  }
}

TEST(TableSchema, FindsANonFiniteSixteenBitValueAnywhere) {
  constexpr size_t kWidth = 4096;
  for (const auto& [type, infinity, largest] :
       {std::tuple(BFLOAT16, 0x7f80, 0x7f7f), std::tuple(FLOAT16, 0x7c00, 0x7bff)}) {
    for (const size_t i : {size_t{0}, size_t{1}, size_t{67}, size_t{2047}, kWidth - 1}) {
      std::vector<uint16_t> halves(kWidth, static_cast<uint16_t>(largest));
      std::vector<float> values(kWidth / 2);
      std::memcpy(values.data(), halves.data(), kWidth * 2);
      EXPECT_TRUE(Check(SparseSpec(kWidth), {5}, values, type).ok());
      halves[i] = static_cast<uint16_t>(infinity);
      std::memcpy(values.data(), halves.data(), kWidth * 2);
      EXPECT_EQ(Check(SparseSpec(kWidth), {5}, values, type).code(),
                absl::StatusCode::kInvalidArgument)
          << i;
    }
  }
}

}  // namespace
}  // namespace pawl
