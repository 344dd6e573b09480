#include "server/replication/change.h"

#include <cstdint>
#include <memory>

#include "client_lib/base/elements.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ChangeTest, AGradientThatIsNotFloat32IsDamageAndChangesNothing) {
  PartitionOptions options;
  options.partitions = 1;
  options.logical_workers = 1;
  options.consistency.set_mode(ASYNC);
  Partition partition(0, options);
  TableSpec spec;
  spec.set_id(1);
  spec.set_name("rows");
  spec.set_kind(SPARSE);
  spec.set_element_type(FLOAT32);
  spec.set_row_width(2);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  ASSERT_TRUE(partition.CreateTable(TableSchema::Create(spec, 1).value()).ok());
  const uint64_t index = partition.log_index();

  const uint64_t key = 3;
  const float values[] = {1, 2};
  for (const ElementType type : {BFLOAT16, FLOAT16, FLOAT32}) {
    for (const int32_t exponent : {0, 1}) {
      uint16_t halves[4];
      EncodeElements(type, values, 2, halves);
      ChangeView change;
      change.kind = ChangeView::Kind::kPush;
      change.index = index + 1;
      change.sender.set_client(0);
      change.sender.set_incarnation(1);
      change.segment.table = 1;
      change.segment.element_type = type;
      change.segment.keys = ByteView(&key, sizeof(key));
      change.segment.values = ByteView(halves, 2 * ElementBytes(type));
      change.segment.exponent = exponent;
      const absl::Status status = ApplyChange(change, nullptr, nullptr, partition);
      const bool is_right = type == FLOAT32 && exponent == 0;
      EXPECT_EQ(status.code(), is_right ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
          << status;
      EXPECT_EQ(partition.log_index(), index + is_right);
      EXPECT_EQ(partition.row_count(), is_right ? 1u : 0u);
      if (is_right) return;
    }
  }
}

}  // namespace
}  // namespace pawl
