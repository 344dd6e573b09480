#include "worker/dense/local_gradients.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {
namespace {

class LocalGradientsTest : public testing::Test {
 protected:
  LocalGradientsTest() : layout_({2, 1}, *SgdRule(), 1), gradients_(layout_, *memory_) {}

  static const UpdateRule* SgdRule() {
    static const auto* const kRule = [] {
      Optimizer spec;
      spec.mutable_sgd()->set_learning_rate(0.5f);
      return (*UpdateRule::Create(spec)).release();
    }();
    return kRule;
  }
  void Host(uint32_t rank, uint64_t first_step) {
    gradients_.Expect(rank, rank + 100);
    ASSERT_TRUE(gradients_.Begin(rank, first_step).ok());
  }
  void GiveAll(uint32_t rank, uint64_t step, float value) {
    for (const size_t table : {1, 0}) {
      const auto buffer = gradients_.Buffer(rank, table);
      std::fill(buffer.begin(), buffer.end(), value);
      gradients_.MarkReady(rank, step, table);
    }
  }
  // The sum of bucket 0, then the flags.
  std::vector<float> Sum(uint64_t step) {
    std::vector<float> sum(2 + 4);
    const auto added =
        gradients_.Sum(0, step, memory_->stream(), sum.data(), absl::MakeSpan(sum).subspan(2));
    return sum;
  }

  const std::unique_ptr<DenseMemory> memory_ = DenseMemory::CreateOnHost();
  const DenseLayout layout_;
  LocalGradients gradients_;
};

TEST_F(LocalGradientsTest, BucketIsCompleteWhenAllRanksContributed) {
  Host(0, 5);
  Host(2, 5);
  EXPECT_FALSE(gradients_.IsComplete(1, 5));
  gradients_.MarkReady(0, 5, 1);
  gradients_.MarkReady(2, 5, 1);
  EXPECT_TRUE(gradients_.IsComplete(1, 5));
  EXPECT_FALSE(gradients_.IsComplete(0, 5));
  GiveAll(0, 5, 1);
  GiveAll(2, 5, 2);
  EXPECT_TRUE(gradients_.IsComplete(0, 5));
  EXPECT_FALSE(gradients_.IsComplete(0, 6));
  EXPECT_EQ(Sum(5), (std::vector<float>{3, 3, 1, 0, 1, 0}));
}

TEST_F(LocalGradientsTest, SumsAreInRankOrder) {
  for (const uint32_t rank : {2, 0, 1}) Host(rank, 5);
  GiveAll(2, 5, -1e8f);
  GiveAll(1, 5, 1.0f);
  GiveAll(0, 5, 1e8f);
  EXPECT_EQ(Sum(5)[0], (1e8f + 1.0f) + -1e8f);
}

TEST_F(LocalGradientsTest, RankWithoutSamplesCounts) {
  Host(0, 5);
  Host(1, 5);
  GiveAll(0, 5, 1);
  gradients_.SkipStep(1, 5);
  EXPECT_TRUE(gradients_.IsComplete(0, 5));
  EXPECT_EQ(Sum(5), (std::vector<float>{1, 1, 1, 1, 0, 0}));
}

TEST_F(LocalGradientsTest, RankThatEndedTheStepElsewhereIsNotAwaited) {
  Host(0, 5);
  Host(1, 6);
  GiveAll(0, 5, 1);
  EXPECT_TRUE(gradients_.IsComplete(0, 5));
  EXPECT_EQ(Sum(5), (std::vector<float>{1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(gradients_.EarliestStep(), 5u);
}

TEST_F(LocalGradientsTest, DepartedRankLeavesContributionsToEndedSteps) {
  Host(0, 5);
  Host(1, 5);
  GiveAll(0, 5, 1);
  GiveAll(1, 5, 2);
  gradients_.End(1, 6);
  EXPECT_EQ(Sum(5), (std::vector<float>{3, 3, 1, 1, 0, 0}));
  // It returns for the next step, which must not touch its earlier contribution.
  Host(1, 6);
  EXPECT_EQ(Sum(5), (std::vector<float>{3, 3, 1, 1, 0, 0}));
  gradients_.DropBefore(6);
  EXPECT_EQ(Sum(5), (std::vector<float>{1, 1, 1, 0, 0, 0}));
}

TEST_F(LocalGradientsTest, ContributionsThatTheSuccessorRepeatsAreDropped) {
  Host(0, 5);
  GiveAll(0, 5, 1);
  gradients_.End(0, 5);
  EXPECT_EQ(Sum(5), (std::vector<float>{0, 0, 0, 0, 0, 0}));
}

TEST_F(LocalGradientsTest, WithoutStartedRanksThereIsNoEarliestStep) {
  gradients_.Expect(0, 1);
  EXPECT_EQ(gradients_.EarliestStep(), std::nullopt);
  ASSERT_TRUE(gradients_.Begin(0, 5).ok());
  EXPECT_EQ(gradients_.EarliestStep(), 5u);
  gradients_.End(0, 5);
  EXPECT_EQ(gradients_.EarliestStep(), std::nullopt);
}

TEST_F(LocalGradientsTest, RanksAreKnownWhenAllExpectedOnesHaveBegun) {
  EXPECT_TRUE(gradients_.Ranks()->empty());
  Host(1, 5);
  gradients_.Expect(0, 7);
  EXPECT_FALSE(gradients_.Ranks().has_value());
  EXPECT_FALSE(gradients_.IsComplete(0, 5));
  const uint64_t changes = gradients_.changes();
  ASSERT_TRUE(gradients_.Begin(0, 5).ok());
  EXPECT_GT(gradients_.changes(), changes);
  ASSERT_EQ(gradients_.Ranks()->size(), 2u);
  EXPECT_EQ(gradients_.Ranks()->front().rank(), 0u);
  EXPECT_EQ(gradients_.Ranks()->front().incarnation(), 7u);
}

TEST(RemoteLocalGradientsTest, SummedMemoryOutlivesItsRank) {
  RemoteMemoryDevice device(RemoteMemoryDevice::Reads::kLate);
  const auto memory = *DenseMemory::Create(device);
  Optimizer spec;
  spec.mutable_sgd()->set_learning_rate(0.5f);
  const auto rule = *UpdateRule::Create(spec);
  const DenseLayout layout({2}, *rule, 0);
  LocalGradients gradients(layout, *memory);
  const std::vector<float> values = {3, 4};
  for (const uint32_t rank : {0, 1}) {
    gradients.Expect(rank, 1);
    ASSERT_TRUE(gradients.Begin(rank, 0).ok());
    ASSERT_TRUE(memory->FromHost(values.data(), 2, gradients.Buffer(rank, 0).data()).ok());
    gradients.MarkReady(rank, 0, 0);
  }
  const auto sum = *memory->Allocate(2);
  std::vector<float> flags(2);
  auto added = gradients.Sum(0, 0, memory->stream(), sum.get(), absl::MakeSpan(flags));
  // Nothing of the sum is done yet. The successors begin before this step, so no contribution
  // stays.
  gradients.End(0, 0);
  gradients.Expect(1, 2);
  // Aborts if it reads freed memory.
  ASSERT_TRUE(memory->Finish().ok());
  added.clear();
  std::vector<float> result(2);
  ASSERT_TRUE(memory->ToHost(sum.get(), 2, result.data()).ok());
  EXPECT_EQ(result, (std::vector<float>{6, 8}));
  EXPECT_EQ(flags, (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace pawl
