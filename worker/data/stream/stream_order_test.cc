#include "worker/data/stream/stream_order.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;

Sampler MakeSampler(uint64_t samples, uint64_t batch_size, uint32_t ranks,
                    bool keep_order = false) {
  return Sampler::Create({.samples = samples,
                          .batch_size = batch_size,
                          .logical_workers = ranks,
                          .seed = 7,
                          .keep_order = keep_order})
      .value();
}

// The positions of a step's samples.
std::vector<uint64_t> Positions(const Sampler& sampler, const StreamOrder& order, uint64_t epoch,
                                uint64_t step, uint32_t rank) {
  const StreamWindow window = order.WindowOf({epoch, step});
  std::vector<uint64_t> in_window;
  for (const SampleRange& range : order.PositionsOf(window, rank)) {
    for (uint64_t p = range.begin; p < range.end; ++p) in_window.push_back(p);
  }
  std::vector<uint64_t> indices, positions;
  order.Indices(window, step, rank, &indices);
  EXPECT_EQ(indices.size(), sampler.PositionsOf({epoch, step}, rank).size());
  for (const uint64_t index : indices) positions.push_back(in_window.at(index));
  return positions;
}

TEST(StreamOrderTest, EpochUsesEachPositionOnce) {
  for (const uint64_t samples : {1u, 7u, 100u, 1001u}) {
    for (const uint64_t batch_size : {1u, 3u, 16u, 2000u}) {
      for (const uint32_t ranks : {1u, 2u, 3u, 8u}) {
        for (const uint64_t window : {1u, 10u, 64u, 5000u}) {
          for (const bool keep_order : {false, true}) {
            const Sampler sampler = MakeSampler(samples, batch_size, ranks, keep_order);
            const StreamOrder order(sampler, window);
            std::vector<uint64_t> used;
            for (uint64_t step = 0; step < sampler.epochs().StepsOf(0); ++step) {
              for (uint32_t rank = 0; rank < ranks; ++rank) {
                const auto positions = Positions(sampler, order, 3, step, rank);
                used.insert(used.end(), positions.begin(), positions.end());
              }
            }
            if (!keep_order) std::sort(used.begin(), used.end());
            std::vector<uint64_t> all(samples);
            std::iota(all.begin(), all.end(), 0);
            ASSERT_EQ(used, all) << samples << " " << batch_size << " " << ranks << " " << window;
          }
        }
      }
    }
  }
}

TEST(StreamOrderTest, EpochOfAnotherBatchSizeUsesEachPositionOnce) {
  const Sampler sampler = Sampler::Create({.samples = 1001,
                                           .batch_size = 16,
                                           .logical_workers = 3,
                                           .seed = 7,
                                           .changes = {{.epoch = 3, .batch_size = 100}}})
                              .value();
  const StreamOrder order(sampler, 64);
  for (const uint64_t epoch : {2u, 3u, 4u}) {
    std::vector<uint64_t> used;
    for (uint64_t step = 0; step < sampler.epochs().StepsOf(epoch); ++step) {
      for (uint32_t rank = 0; rank < 3; ++rank) {
        const auto positions = Positions(sampler, order, epoch, step, rank);
        used.insert(used.end(), positions.begin(), positions.end());
      }
    }
    std::sort(used.begin(), used.end());
    std::vector<uint64_t> all(1001);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(used, all) << "epoch " << epoch;
  }
}

TEST(StreamOrderTest, WindowsDifferBetweenEpochsRanksAndNumbers) {
  const Sampler sampler = MakeSampler(4000, 100, 2);
  const StreamOrder order(sampler, 500);
  std::set<std::vector<uint64_t>> seen;
  for (const uint64_t epoch : {0u, 1u}) {
    for (const uint64_t step : {0u, 10u}) {
      for (const uint32_t rank : {0u, 1u}) {
        std::vector<uint64_t> indices;
        order.Indices(order.WindowOf({epoch, step}), step, rank, &indices);
        EXPECT_TRUE(seen.insert(indices).second) << epoch << " " << step << " " << rank;
      }
    }
  }
}

TEST(StreamOrderTest, OrderNeverChanges) {
  // A job that is resumed by another version must see the same samples.
  const Sampler sampler = MakeSampler(40, 8, 2);
  const StreamOrder order(sampler, 12);
  EXPECT_EQ(order.WindowOf({1, 4}), (StreamWindow{1, 1, 3, 5}));
  EXPECT_THAT(Positions(sampler, order, 1, 4, 1), ElementsAre(37, 39, 35, 33));
  const EpochOrder epoch({5, 10, 15, 10}, 7, 1, false);
  std::vector<size_t> units;
  for (uint64_t p = 0; p < 40; p += 5) units.push_back(epoch.At(p).unit);
  EXPECT_THAT(units, ElementsAre(2, 2, 2, 3, 3, 0, 1, 1));
}

TEST(StreamOrderTest, NextWindowMayBeInTheNextEpoch) {
  const Sampler sampler = MakeSampler(70, 10, 1);
  const StreamOrder order(sampler, 30);
  StreamWindow window = order.WindowOf({2, 4});
  EXPECT_EQ(window, (StreamWindow{2, 1, 3, 6}));
  window = order.Next(window);
  EXPECT_EQ(window, (StreamWindow{2, 2, 6, 7}));
  EXPECT_EQ(order.Next(window), (StreamWindow{3, 0, 0, 3}));
}

TEST(EpochOrderTest, PlacesFollowTheUnits) {
  const EpochOrder kept({5, 0, 2}, 7, 0, true);
  EXPECT_EQ(kept.At(0).unit, 0u);
  EXPECT_EQ(kept.At(4).left, 1u);
  EXPECT_EQ(kept.At(5).unit, 2u);
  EXPECT_EQ(kept.At(6).sample, 1u);
  std::set<size_t> firsts;
  for (uint64_t epoch = 0; epoch < 20; ++epoch)
    firsts.insert(EpochOrder({1, 1, 1, 1}, 7, epoch, false).At(0).unit);
  EXPECT_EQ(firsts.size(), 4u);
}

}  // namespace
}  // namespace pawl
