#include "client_lib/session/step_calls.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ResumptionTest, EqualClocksLeaveNoPartitionBehind) {
  const absl::StatusOr<Resumption> at = ResumptionAt({7, 7, 7}, SYNC);
  ASSERT_TRUE(at.ok());
  EXPECT_EQ(at->step, 7u);
  EXPECT_TRUE(at->behind.empty());
}

TEST(ResumptionTest, PartitionsOneStepBehindAreListed) {
  const absl::StatusOr<Resumption> at = ResumptionAt({6, 7, 6, 7}, SYNC);
  ASSERT_TRUE(at.ok());
  EXPECT_EQ(at->step, 7u);
  EXPECT_EQ(at->behind, (std::vector<uint32_t>{0, 2}));
}

TEST(ResumptionTest, SyncRefusesClocksTwoStepsApart) {
  const absl::Status status = ResumptionAt({6, 8}, SYNC).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("6 in partition 0 and 8 in partition 1"), absl::string_view::npos)
      << status;
}

TEST(ResumptionTest, OtherModesContinueAtTheLowestClock) {
  for (const ConsistencyMode mode : {BOUNDED, ASYNC}) {
    const absl::StatusOr<Resumption> at = ResumptionAt({9, 4}, mode);
    ASSERT_TRUE(at.ok());
    EXPECT_EQ(at->step, 4u);
    EXPECT_TRUE(at->behind.empty());
  }
}

}  // namespace
}  // namespace pawl
