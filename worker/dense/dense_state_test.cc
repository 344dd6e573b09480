#include "worker/dense/dense_state.h"

#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::minutes kLimit{1};

class DenseStateTest : public testing::Test {
 protected:
  DenseStateTest() {
    Optimizer spec;
    spec.mutable_sgd()->set_learning_rate(0.5f);
    rule_ = *UpdateRule::Create(spec);
    layout_ = std::make_unique<DenseLayout>(std::vector<uint64_t>{2, 3}, *rule_, 1);
    state_ = *DenseState::Create(*layout_, *rule_, *memory_);
  }
  void Fill(uint64_t version, float value) {
    for (size_t b = 0; b < 2; ++b) {
      std::fill_n(state_->weights(b, version), layout_->buckets()[b].count, value);
      state_->Publish(b, version);
    }
  }
  std::vector<float> Values(size_t table, uint64_t version) {
    const auto values = state_->Values(table, version);
    return {values.begin(), values.end()};
  }

  std::unique_ptr<const UpdateRule> rule_;
  std::unique_ptr<DenseLayout> layout_;
  const std::unique_ptr<DenseMemory> memory_ = DenseMemory::CreateOnHost();
  std::unique_ptr<DenseState> state_;
  Interrupt interrupt_;
};

TEST_F(DenseStateTest, UpdateMakesTheNextVersionAndKeepsThePrevious) {
  EXPECT_EQ(state_->steps(), std::nullopt);
  Fill(4, 1.0f);
  EXPECT_EQ(state_->steps(), 4u);
  const std::vector<float> gradient = {2, 4, 8};
  EXPECT_TRUE(state_->Apply(1, 0.5f, gradient.data()).ok());
  EXPECT_EQ(state_->versions(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(state_->steps(), 4u);
  EXPECT_EQ(Values(1, 5), (std::vector<float>{0.5f, 0, -1}));
  EXPECT_EQ(Values(1, 4), (std::vector<float>{1, 1, 1}));
}

TEST_F(DenseStateTest, TablesBecomeReadyIndependently) {
  Fill(4, 1.0f);
  const std::vector<float> gradient = {2, 4, 8};
  EXPECT_TRUE(state_->Apply(1, 1, gradient.data()).ok());
  EXPECT_TRUE(state_->Await(1, 5, kLimit, interrupt_).ok());
  EXPECT_EQ(state_->Await(0, 5, std::chrono::milliseconds(1), interrupt_).code(),
            absl::StatusCode::kDeadlineExceeded);
  std::thread later([&] { EXPECT_TRUE(state_->Apply(0, 1, gradient.data()).ok()); });
  EXPECT_TRUE(state_->AwaitAll(5, kLimit, interrupt_).ok());
  later.join();
}

TEST_F(DenseStateTest, LaggingRankReadsTheOldestVersion) {
  Fill(4, 1.0f);
  EXPECT_EQ(*state_->VersionFor(2, kLimit, interrupt_), 4u);
  const std::vector<float> gradient = {2, 4, 8};
  for (const size_t bucket : {0, 1}) EXPECT_TRUE(state_->Apply(bucket, 1, gradient.data()).ok());
  EXPECT_EQ(*state_->VersionFor(4, kLimit, interrupt_), 4u);
  EXPECT_EQ(*state_->VersionFor(5, kLimit, interrupt_), 5u);
  EXPECT_EQ(*state_->VersionFor(6, kLimit, interrupt_), 6u);
  // The first bucket of version 6 overwrites version 4.
  EXPECT_TRUE(state_->Apply(0, 1, gradient.data()).ok());
  EXPECT_EQ(*state_->VersionFor(4, kLimit, interrupt_), 5u);
}

TEST_F(DenseStateTest, NoRankReadsBeforeThePreviousVersion) {
  Fill(4, 1.0f);
  EXPECT_EQ(state_->VersionFor(6, std::chrono::milliseconds(1), interrupt_).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(DenseStateTest, RetiredStateIsNotReadable) {
  Fill(4, 1.0f);
  state_->Retire();
  EXPECT_FALSE(state_->VersionFor(4, std::chrono::milliseconds(1), interrupt_).ok());
  // The writing thread may be in the middle of a step.
  const std::vector<float> gradient = {2, 4, 8};
  for (const size_t bucket : {0, 1}) EXPECT_TRUE(state_->Apply(bucket, 1, gradient.data()).ok());
  EXPECT_FALSE(state_->AwaitAll(5, std::chrono::milliseconds(1), interrupt_).ok());
  state_->Clear();
  EXPECT_FALSE(state_->retired());
  Fill(6, 1.0f);
  EXPECT_EQ(*state_->VersionFor(6, kLimit, interrupt_), 6u);
}

TEST_F(DenseStateTest, RelabelMovesTheWeights) {
  Fill(4, 1.0f);
  EXPECT_TRUE(state_->Relabel(0, 9).ok());
  EXPECT_TRUE(state_->Relabel(1, 9).ok());
  EXPECT_EQ(state_->steps(), 9u);
  EXPECT_EQ(Values(0, 9), (std::vector<float>{1, 1}));
  EXPECT_EQ(*state_->VersionFor(4, kLimit, interrupt_), 9u);
}

TEST_F(DenseStateTest, WaitsEndWithTheInterruptOrTheFailure) {
  std::thread later([&] { interrupt_.Set(absl::CancelledError("enough")); });
  EXPECT_EQ(state_->AwaitAll(1, kLimit, interrupt_), absl::CancelledError("enough"));
  later.join();
  Interrupt none;
  state_->Fail(absl::InternalError("broken"));
  EXPECT_EQ(state_->AwaitAll(1, kLimit, none), absl::InternalError("broken"));
}

TEST_F(DenseStateTest, BiasCorrectionCountsActualUpdates) {
  Optimizer spec;
  spec.mutable_adam()->set_learning_rate(0.5f);
  const auto adam = *UpdateRule::Create(spec);
  const DenseLayout layout({1}, *adam, 1);
  const auto of_lost = *DenseState::Create(layout, *adam, *memory_),
             of_fresh = *DenseState::Create(layout, *adam, *memory_);
  DenseState &lost = *of_lost, &fresh = *of_fresh;
  lost.Publish(0, 7);
  lost.set_lost_steps(7);
  fresh.Publish(0, 0);
  const float gradient = 1;
  EXPECT_TRUE(lost.Apply(0, 1, &gradient).ok());
  EXPECT_TRUE(fresh.Apply(0, 1, &gradient).ok());
  EXPECT_EQ(lost.Values(0, 8)[0], fresh.Values(0, 1)[0]);
}

}  // namespace
}  // namespace pawl
