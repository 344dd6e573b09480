#include "worker/train/ndcg.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// The definition for one order of the samples, best first (Burges et al. 2005; Järvelin and
// Kekäläinen 2002).
double Dcg(const std::vector<double>& relevances, size_t at) {
  double sum = 0;
  for (size_t i = 0; i < std::min(at, relevances.size()); ++i)
    sum += (std::pow(2.0, relevances[i]) - 1) / std::log2(static_cast<double>(i) + 2);
  return sum;
}

// The mean over all permutations that sort the samples by descending order.
double ReferenceNdcg(std::vector<RankedSample> samples, size_t at) {
  std::vector<double> best;
  for (const RankedSample& sample : samples) best.push_back(sample.relevance);
  std::sort(best.rbegin(), best.rend());
  std::vector<size_t> places(samples.size());
  std::iota(places.begin(), places.end(), 0);
  double sum = 0;
  int orders = 0;
  do {
    std::vector<double> relevances;
    bool descends = true;
    for (size_t i = 0; i < places.size(); ++i) {
      relevances.push_back(samples[places[i]].relevance);
      descends = descends && (i == 0 || samples[places[i - 1]].order >= samples[places[i]].order);
    }
    if (!descends) continue;
    sum += Dcg(relevances, at);
    ++orders;
  } while (std::next_permutation(places.begin(), places.end()));
  return sum / orders / Dcg(best, at);
}

std::optional<double> Ndcg(std::vector<RankedSample> samples, uint32_t at) {
  std::sort(samples.begin(), samples.end(), [](const RankedSample& a, const RankedSample& b) {
    return a.order != b.order ? a.order < b.order : a.relevance < b.relevance;
  });
  return NdcgCalculator(at).Ndcg(samples);
}

// From the documentation of scikit-learn's ndcg_score, with the gains 2^label - 1: DCG = 3 +
// 7 / log2(3) + 15 / 2 + 0 + 1 / log2(6), best 15 + 7 / log2(3) + 3 / 2 + 1 / log2(5).
TEST(NdcgTest, KnownExample) {
  const std::vector<RankedSample> samples = {{50, 2}, {40, 3}, {30, 4}, {20, 0}, {10, 1}};
  const double dcg = 3 + 7 / std::log2(3) + 7.5 + 1 / std::log2(6);
  const double best = 15 + 7 / std::log2(3) + 1.5 + 1 / std::log2(5);
  EXPECT_NEAR(*Ndcg(samples, 10), dcg / best, 1e-12);
  EXPECT_NEAR(*Ndcg(samples, 1), 3.0 / 15, 1e-12);
}

TEST(NdcgTest, EqualsTheMeanOverAllOrdersOfTies) {
  const uint32_t seed = 20261127;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int ties = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<RankedSample> samples(1 + random() % 7);
    for (RankedSample& sample : samples) {
      sample.order = random() % 4;
      sample.relevance = static_cast<float>(random() % 9) / 2;
    }
    samples[0].relevance = 1;
    for (const RankedSample& sample : samples)
      ties += &sample != &samples[0] && sample.order == samples[0].order;
    for (const uint32_t at : {1u, 2u, 3u, 10u}) {
      const std::optional<double> ndcg = Ndcg(samples, at);
      ASSERT_TRUE(ndcg.has_value());
      EXPECT_NEAR(*ndcg, ReferenceNdcg(samples, at), 1e-12) << "at " << at;
    }
  }
  EXPECT_GT(ties, 20);
}

TEST(NdcgTest, BestOrderHasOneAndWorstLess) {
  EXPECT_EQ(Ndcg({{3, 5}, {2, 1}, {1, 0}}, 10), 1.0);
  EXPECT_LT(*Ndcg({{1, 5}, {2, 1}, {3, 0}}, 10), 0.7);
  EXPECT_EQ(Ndcg({{1, 5}, {2, 0}, {3, 0}}, 2), 0.0);
}

TEST(NdcgTest, GroupWithoutRelevantSamplesHasNone) {
  EXPECT_EQ(Ndcg({{1, 0}, {2, 0}}, 10), std::nullopt);
  EXPECT_EQ(NdcgCalculator(10).Ndcg({}), std::nullopt);
}

TEST(NdcgTest, LargestRelevanceIsFinite) {
  EXPECT_EQ(Ndcg({{2, kMaxRelevance}, {1, kMaxRelevance - 0.5f}}, 10), 1.0);
}

TEST(NdcgTest, CalculatorIsReusable) {
  NdcgCalculator calculator(3);
  const std::vector<RankedSample> one = {{1, 1}};
  const std::vector<RankedSample> four = {{1, 0}, {2, 0}, {3, 1}, {4, 0}};
  EXPECT_EQ(calculator.Ndcg(one), 1.0);
  EXPECT_NEAR(*calculator.Ndcg(four), 1 / std::log2(3), 1e-12);
  EXPECT_EQ(calculator.Ndcg(one), 1.0);
}

}  // namespace
}  // namespace pawl
