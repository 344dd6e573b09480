#include "client_lib/daemon/staleness_counts.h"

#include <cmath>
#include <numeric>

#include "gtest/gtest.h"

namespace pawl {
namespace {

StalenessHistogram Of(std::initializer_list<uint64_t> values) {
  StalenessCounts counts;
  for (const uint64_t value : values) counts.Add(value);
  StalenessHistogram histogram;
  counts.AddTo(histogram);
  return histogram;
}

TEST(StalenessCountsTest, ValuesAreCountedBelowTheirBounds) {
  const StalenessHistogram histogram = Of({0, 0, 1, 6, 7, 8, 9, 256, 257, 1'000'000});
  ASSERT_EQ(histogram.counts_size(), static_cast<int>(kStalenessBounds.size()) + 1);
  EXPECT_EQ(histogram.counts(0), 2u);
  EXPECT_EQ(histogram.counts(1), 1u);
  EXPECT_EQ(histogram.counts(6), 1u) << "6";
  EXPECT_EQ(histogram.counts(7), 2u) << "7 and 8";
  EXPECT_EQ(histogram.counts(8), 1u) << "9";
  EXPECT_EQ(histogram.counts(17), 1u) << "256";
  EXPECT_EQ(histogram.counts(18), 2u) << "above 256";
  EXPECT_EQ(std::accumulate(histogram.counts().begin(), histogram.counts().end(), uint64_t{0}),
            10u);
  EXPECT_EQ(histogram.sum(), 1'000'544u);
}

TEST(StalenessCountsTest, HistogramsAddUp) {
  StalenessHistogram sum;
  AddHistogram(Of({0, 3}), sum);
  AddHistogram({}, sum);
  AddHistogram(Of({3, 300}), sum);
  EXPECT_EQ(sum.SerializeAsString(), Of({0, 3, 3, 300}).SerializeAsString());
}

TEST(StalenessCountsTest, SummaryCoversNewCountsOnly) {
  EXPECT_FALSE(SummarizeStaleness({}).has_value());
  const StalenessHistogram before = Of({100, 100, 100});
  EXPECT_FALSE(SummarizeStaleness(before, before).has_value());
  StalenessHistogram now = before;
  AddHistogram(Of({1, 2, 3, 4}), now);
  EXPECT_EQ(SummarizeStaleness(now, before)->mean, 2.5);
  EXPECT_EQ(SummarizeStaleness(now, before)->p99, 4);
  EXPECT_EQ(SummarizeStaleness(now)->p99, 128);
  EXPECT_TRUE(std::isinf(SummarizeStaleness(Of({1000}))->p99));
}

TEST(StalenessCountsTest, Percentile99LeavesOutOneOfAHundred) {
  StalenessCounts counts;
  for (int i = 0; i < 99; ++i) counts.Add(1);
  counts.Add(50);
  StalenessHistogram histogram;
  counts.AddTo(histogram);
  EXPECT_EQ(SummarizeStaleness(histogram)->p99, 1);
  counts.Add(50);
  histogram.Clear();
  counts.AddTo(histogram);
  EXPECT_EQ(SummarizeStaleness(histogram)->p99, 64);
}

TEST(StalenessCountsTest, CountsThatBeganAgainAreAllNew) {
  EXPECT_EQ(SummarizeStaleness(Of({2}), Of({2, 2, 4}))->mean, 2);
  EXPECT_EQ(SummarizeStaleness(Of({1, 1, 9}), Of({8}))->mean, 11.0 / 3);
}

}  // namespace
}  // namespace pawl
