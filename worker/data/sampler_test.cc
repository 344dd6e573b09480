#include "worker/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

Sampler Make(uint64_t samples, uint64_t batch_size, uint32_t logical_workers, uint64_t seed = 7,
             bool keep_order = false) {
  absl::StatusOr<Sampler> sampler =
      Sampler::Create({samples, batch_size, logical_workers, seed, keep_order});
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *sampler;
}

std::vector<uint64_t> Epoch(const Sampler& sampler, uint64_t epoch) {
  std::vector<uint64_t> all;
  std::vector<uint64_t> indices;
  for (uint64_t step = 0; step < sampler.epochs().StepsOf(0); ++step) {
    for (uint32_t rank = 0; rank < sampler.options().logical_workers; ++rank) {
      sampler.Indices({epoch, step}, rank, &indices);
      all.insert(all.end(), indices.begin(), indices.end());
    }
  }
  return all;
}

std::vector<uint64_t> Counting(uint64_t n) {
  std::vector<uint64_t> numbers(n);
  for (uint64_t i = 0; i < n; ++i) numbers[i] = i;
  return numbers;
}

TEST(SamplerTest, SamplesBeforeAStepAreThoseOfEarlierSteps) {
  for (const uint64_t samples : {1, 7, 10, 23}) {
    const Sampler sampler = Make(samples, 10, 4);
    std::vector<uint64_t> sums(4);
    std::vector<uint64_t> indices;
    for (uint64_t step = 0; step < 3 * sampler.epochs().StepsOf(0) + 1; ++step) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(sampler.SamplesBefore(step, rank), sums[rank])
            << samples << " samples, step " << step;
        sampler.Indices(sampler.epochs().PositionOf(step), rank, &indices);
        sums[rank] += indices.size();
      }
    }
  }
}

TEST(SamplerTest, BatchSizeChangesWithTheEpoch) {
  const absl::StatusOr<Sampler> sampler = Sampler::Create(
      {.samples = 23,
       .batch_size = 4,
       .logical_workers = 3,
       .seed = 7,
       .changes = {{.epoch = 2, .batch_size = 10}, {.epoch = 3, .batch_size = 30}}});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const EpochSteps& epochs = sampler->epochs();
  EXPECT_EQ(epochs.StepsOf(1), 6u);
  EXPECT_EQ(epochs.StepsOf(2), 3u);
  EXPECT_EQ(epochs.StepsOf(9), 1u);
  EXPECT_EQ(epochs.FirstStepOf(2), 12u);
  EXPECT_EQ(epochs.FirstStepOf(5), 17u);
  EXPECT_EQ(sampler->GlobalSize({1, 5}), 3u);
  EXPECT_EQ(sampler->GlobalSize({2, 0}), 10u);
  EXPECT_EQ(sampler->GlobalSize({2, 2}), 3u);
  EXPECT_EQ(sampler->GlobalSize({4, 0}), 23u);
  // Every epoch has all samples, and a rank's number of them is the sum of its steps'.
  std::vector<uint64_t> sums(3);
  std::vector<uint64_t> indices;
  std::vector<uint64_t> taken;
  for (uint64_t step = 0; step < 19; ++step) {
    const SamplePosition position = epochs.PositionOf(step);
    EXPECT_EQ(epochs.FirstStepOf(position.epoch) + position.step, step);
    if (position.step == 0) taken.clear();
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(sampler->SamplesBefore(step, rank), sums[rank]) << "step " << step;
      sampler->Indices(position, rank, &indices);
      taken.insert(taken.end(), indices.begin(), indices.end());
      sums[rank] += indices.size();
    }
    if (position.step + 1 < epochs.StepsOf(position.epoch)) continue;
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(taken, Counting(23)) << "epoch " << position.epoch;
  }
}

TEST(SamplerTest, EpochUsesEverySampleOnce) {
  for (const uint64_t samples : {1, 2, 5, 64, 100, 1001, 4096}) {
    for (const uint64_t batch_size : {1, 3, 64, 100, 5000}) {
      for (const uint32_t logical_workers : {1, 2, 3, 7, 200}) {
        const Sampler sampler = Make(samples, batch_size, logical_workers);
        std::vector<uint64_t> taken = Epoch(sampler, 2);
        std::sort(taken.begin(), taken.end());
        EXPECT_EQ(taken, Counting(samples))
            << samples << " " << batch_size << " " << logical_workers;
      }
    }
  }
}

TEST(SamplerTest, StepsAreFullExceptTheLast) {
  const Sampler sampler = Make(1001, 100, 3);
  EXPECT_EQ(sampler.epochs().StepsOf(0), 11u);
  for (uint64_t step = 0; step < 10; ++step) EXPECT_EQ(sampler.GlobalSize({0, step}), 100u);
  EXPECT_EQ(sampler.GlobalSize({0, 10}), 1u);
  EXPECT_EQ(Make(1000, 100, 3).epochs().StepsOf(0), 10u);
  EXPECT_EQ(Make(1000, 100, 3).GlobalSize({0, 9}), 100u);
}

TEST(SamplerTest, SharesOfAStepDifferByAtMostOneAndAddUp) {
  const Sampler sampler = Make(1003, 100, 7);
  for (uint64_t step = 0; step < sampler.epochs().StepsOf(0); ++step) {
    uint64_t next = step * 100;
    for (uint32_t rank = 0; rank < 7; ++rank) {
      const SampleRange share = sampler.PositionsOf({0, step}, rank);
      EXPECT_EQ(share.begin, next);
      EXPECT_GE(share.size(), sampler.GlobalSize({0, step}) / 7);
      EXPECT_LE(share.size(), sampler.GlobalSize({0, step}) / 7 + 1);
      next = share.end;
    }
    EXPECT_EQ(next, std::min<uint64_t>(step * 100 + 100, 1003));
  }
}

TEST(SamplerTest, OrderIsIndependentOfBatchSizeAndWorkers) {
  EXPECT_EQ(Epoch(Make(1001, 100, 4), 1), Epoch(Make(1001, 17, 1), 1));
}

TEST(SamplerTest, OrderDiffersByEpochAndSeed) {
  const Sampler sampler = Make(1000, 100, 2);
  EXPECT_EQ(Epoch(sampler, 0), Epoch(Make(1000, 100, 2), 0));
  EXPECT_NE(Epoch(sampler, 0), Epoch(sampler, 1));
  EXPECT_NE(Epoch(sampler, 0), Epoch(Make(1000, 100, 2, 8), 0));
  EXPECT_NE(Epoch(sampler, 0), Counting(1000));
}

TEST(SamplerTest, KeepOrderGivesTheFilesOrder) {
  const Sampler sampler = Make(1001, 100, 3, 7, true);
  EXPECT_EQ(Epoch(sampler, 0), Counting(1001));
  EXPECT_EQ(Epoch(sampler, 5), Counting(1001));
}

TEST(SamplerTest, EpochStartsWhereThePreviousOneEnds) {
  const Sampler sampler = Make(1001, 100, 3);
  EXPECT_EQ(sampler.epochs().PositionOf(0), (SamplePosition{0, 0}));
  EXPECT_EQ(sampler.epochs().PositionOf(10), (SamplePosition{0, 10}));
  EXPECT_EQ(sampler.epochs().PositionOf(11), (SamplePosition{1, 0}));
  EXPECT_EQ(sampler.epochs().PositionOf(49), (SamplePosition{4, 5}));
}

TEST(SamplerTest, SharesCoverEverythingOnce) {
  for (const uint64_t samples : {0, 1, 2, 10, 502228}) {
    for (const uint32_t ranks : {1, 2, 3, 16}) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const SampleRange shard = ShareOf(samples, rank, ranks);
        EXPECT_EQ(shard.begin, next);
        EXPECT_LE(shard.size(), samples / ranks + 1);
        next = shard.end;
      }
      EXPECT_EQ(next, samples);
    }
  }
}

TEST(SamplerTest, SharesDoNotOverflowAtTheLimits) {
  const Sampler sampler = Make(Sampler::kMaxSamples, Sampler::kMaxBatchSize, Sampler::kMaxRanks);
  const uint64_t last = sampler.epochs().StepsOf(0) - 1;
  EXPECT_EQ(sampler.PositionsOf({0, last}, Sampler::kMaxRanks - 1).end, Sampler::kMaxSamples);
  const uint32_t ranks = 0xffffffff;
  constexpr uint64_t kMost = uint64_t{1} << 32;
  EXPECT_EQ(ShareOf(kMost, ranks - 1, ranks).end, kMost);
}

TEST(SamplerTest, ImpossibleOptionsAreRefusedByName) {
  EXPECT_THAT(Sampler::Create({0, 1, 1}).status().message(), HasSubstr("samples is 0"));
  EXPECT_THAT(Sampler::Create({1, 0, 1}).status().message(), HasSubstr("batch_size is 0"));
  EXPECT_THAT(Sampler::Create({1, 1, 0}).status().message(), HasSubstr("logical_workers is 0"));
  EXPECT_EQ(Sampler::Create({1, Sampler::kMaxBatchSize + 1, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Sampler::Create({Sampler::kMaxSamples + 1, 1, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Never change these: the results of every job would change.
TEST(SamplerTest, ValuesArePinned) {
  std::vector<uint64_t> indices;
  Make(2497772, 4096, 4).Indices({1, 609}, 3, &indices);
  EXPECT_EQ(indices.size(), 827u);
  indices.resize(4);
  EXPECT_EQ(indices, (std::vector<uint64_t>{1355569, 1765766, 2275035, 2340612}));
}

}  // namespace
}  // namespace pawl
