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
  for (uint64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
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
    for (uint64_t step = 0; step < 3 * sampler.steps_per_epoch() + 1; ++step) {
      for (uint32_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(sampler.SamplesBefore(step, rank), sums[rank])
            << samples << " samples, step " << step;
        sampler.Indices(sampler.PositionOf(step), rank, &indices);
        sums[rank] += indices.size();
      }
    }
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
  EXPECT_EQ(sampler.steps_per_epoch(), 11u);
  for (uint64_t step = 0; step < 10; ++step) EXPECT_EQ(sampler.GlobalSize(step), 100u);
  EXPECT_EQ(sampler.GlobalSize(10), 1u);
  EXPECT_EQ(Make(1000, 100, 3).steps_per_epoch(), 10u);
  EXPECT_EQ(Make(1000, 100, 3).GlobalSize(9), 100u);
}

TEST(SamplerTest, SharesOfAStepDifferByAtMostOneAndAddUp) {
  const Sampler sampler = Make(1003, 100, 7);
  for (uint64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    uint64_t next = step * 100;
    for (uint32_t rank = 0; rank < 7; ++rank) {
      const SampleRange share = sampler.PositionsOf(step, rank);
      EXPECT_EQ(share.begin, next);
      EXPECT_GE(share.size(), sampler.GlobalSize(step) / 7);
      EXPECT_LE(share.size(), sampler.GlobalSize(step) / 7 + 1);
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
  EXPECT_EQ(sampler.PositionOf(0), (SamplePosition{0, 0}));
  EXPECT_EQ(sampler.PositionOf(10), (SamplePosition{0, 10}));
  EXPECT_EQ(sampler.PositionOf(11), (SamplePosition{1, 0}));
  EXPECT_EQ(sampler.PositionOf(49), (SamplePosition{4, 5}));
}

TEST(SamplerTest, EvaluationShardsCoverTheFileOnce) {
  for (const uint64_t samples : {0, 1, 2, 10, 502228}) {
    for (const uint32_t ranks : {1, 2, 3, 16}) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const SampleRange shard = EvaluationShard(samples, rank, ranks);
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
  const uint64_t last = sampler.steps_per_epoch() - 1;
  EXPECT_EQ(sampler.PositionsOf(last, Sampler::kMaxRanks - 1).end, Sampler::kMaxSamples);
  const uint32_t ranks = 0xffffffff;
  // Evaluation data is in memory, which holds at most 2^32 samples.
  constexpr uint64_t kMost = uint64_t{1} << 32;
  EXPECT_EQ(EvaluationShard(kMost, ranks - 1, ranks).end, kMost);
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
