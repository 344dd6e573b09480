#include "client_lib/session/step_calls.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/rpc/testing/in_process_transport.h"
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

TEST(ClipScaleTest, NormAboveTheLimitIsScaledDownToIt) {
  EXPECT_EQ(ClipScale({9, 16}, 2.5f), 0.5f);
  EXPECT_EQ(ClipScale({9, 16}, 5.0f), 1.0f);
  EXPECT_EQ(ClipScale({9, 16}, 6.0f), 1.0f);
  EXPECT_EQ(ClipScale({0, 0}, 1.0f), 1.0f);
  EXPECT_EQ(ClipScale({9}, 1.0f), static_cast<float>(1.0 / 3.0));
}

TEST(ClipScaleTest, OverflowGivesAScaleThatServersAccept) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_GT(ClipScale({infinity}, 1.0f), 0.0f);
  EXPECT_GT(ClipScale({1e300}, 1e-30f), 0.0f);
  EXPECT_EQ(ClipScale({std::numeric_limits<double>::quiet_NaN()}, 1.0f), 1.0f);
}

class StepClosingsTest : public testing::Test {
 protected:
  void End(uint32_t rank, const absl::Status& status) {
    closings_->End(rank, status, /*client_has_failed=*/false);
  }
  void TearDown() override { deadlines_->Close(); }

  // The result once it is there.
  std::shared_ptr<std::optional<absl::Status>> WhenClosed(const std::vector<uint32_t>& ranks) {
    auto result = std::make_shared<std::optional<absl::Status>>();
    closings_->WhenClosed(ranks, Clock::Real().Now() + std::chrono::seconds(600),
                          [result](absl::Status status) { *result = std::move(status); });
    return result;
  }

  InProcessTransport transport_;
  std::shared_ptr<DeadlineQueue> deadlines_ =
      std::make_shared<DeadlineQueue>(transport_, Clock::Real());
  std::shared_ptr<StepClosings> closings_ = std::make_shared<StepClosings>(deadlines_);
};

TEST_F(StepClosingsTest, WaitsForTheNamedRanksOnly) {
  closings_->Begin(1);
  closings_->Begin(2);
  closings_->Begin(3);
  EXPECT_EQ(*WhenClosed({4, 5}), absl::OkStatus());
  const auto some = WhenClosed({2, 3});
  const auto all = WhenClosed({});
  End(2, absl::OkStatus());
  EXPECT_FALSE(some->has_value());
  End(3, absl::OkStatus());
  EXPECT_EQ(*some, absl::OkStatus());
  EXPECT_FALSE(all->has_value());
  End(1, absl::OkStatus());
  EXPECT_EQ(*all, absl::OkStatus());
  EXPECT_EQ(*WhenClosed({}), absl::OkStatus());
}

// A rank that moves away and returns: the first session's close may end after the second's begins.
TEST_F(StepClosingsTest, WaitsForAllClosesOfARank) {
  closings_->Begin(1);
  closings_->Begin(1);
  const auto both = WhenClosed({1});
  End(1, absl::AbortedError("superseded"));
  EXPECT_FALSE(both->has_value());
  End(1, absl::OkStatus());
  EXPECT_EQ(*both, absl::OkStatus());
}

TEST_F(StepClosingsTest, FailureOfACloseIsTheResult) {
  closings_->Begin(1);
  closings_->Begin(2);
  const auto both = WhenClosed({1, 2});
  const auto other = WhenClosed({2});
  End(1, absl::CancelledError("the client ends"));
  EXPECT_EQ(*both, absl::CancelledError("the client ends"));
  EXPECT_FALSE(other->has_value());
  End(2, absl::AbortedError("a successor closes it"));
  EXPECT_EQ(*other, absl::OkStatus());
}

// The scheduler has disowned the process. The step stays open until its ranks are taken over.
TEST_F(StepClosingsTest, AbortedOfAFailedClientIsTheResult) {
  closings_->Begin(1);
  const auto closed = WhenClosed({1});
  closings_->End(1, absl::AbortedError("not part of the job"), /*client_has_failed=*/true);
  EXPECT_EQ(*closed, absl::AbortedError("not part of the job"));
}

// A session may fail long before its process tells the scheduler about the rank.
TEST_F(StepClosingsTest, FailureIsKeptUntilACloseOfTheRankSucceeds) {
  closings_->Begin(1);
  End(1, absl::InternalError("no scale"));
  EXPECT_EQ(*WhenClosed({1}), absl::InternalError("no scale"));
  EXPECT_EQ(*WhenClosed({2, 1}), absl::InternalError("no scale"));
  EXPECT_EQ(*WhenClosed({}), absl::InternalError("no scale"));
  EXPECT_EQ(*WhenClosed({2}), absl::OkStatus());
  closings_->Begin(1);
  const auto again = WhenClosed({1});
  EXPECT_FALSE(again->has_value());
  End(1, absl::OkStatus());
  EXPECT_EQ(*again, absl::OkStatus());
  EXPECT_EQ(*WhenClosed({1}), absl::OkStatus());

  closings_->Begin(1);
  End(1, absl::InternalError("no scale"));
  closings_->Begin(1);
  End(1, absl::AbortedError("a successor closes it"));
  EXPECT_EQ(*WhenClosed({}), absl::OkStatus());
}

}  // namespace
}  // namespace pawl
