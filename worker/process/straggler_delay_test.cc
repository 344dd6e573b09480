#include "worker/process/straggler_delay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr uint64_t kSeed = 7;

double Milliseconds(MonotonicDuration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

Straggler Parsed(const std::string& text) {
  const absl::StatusOr<Straggler> straggler = ParseStraggler(text);
  EXPECT_TRUE(straggler.ok()) << text << ": " << straggler.status();
  return straggler.ok() ? *straggler : Straggler();
}

// Ascending.
std::vector<double> Delays(const Straggler& straggler, uint64_t steps) {
  std::vector<double> delays;
  for (uint64_t step = 0; step < steps; ++step)
    delays.push_back(Milliseconds(DelayOf(straggler, kSeed, /*rank=*/0, step)));
  std::sort(delays.begin(), delays.end());
  return delays;
}

// The largest difference between the distribution of the ascending samples and the expected one.
template <typename Function>
double KolmogorovDistance(const std::vector<double>& samples, const Function& distribution) {
  const auto count = static_cast<double>(samples.size());
  double distance = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double expected = distribution(samples[i]);
    distance = std::max({distance, std::abs(static_cast<double>(i) / count - expected),
                         std::abs(static_cast<double>(i + 1) / count - expected)});
  }
  return distance;
}

TEST(StragglerDelayTest, NoTextMeansNoDelay) {
  EXPECT_EQ(DelayOf(Parsed(""), kSeed, 0, 0), MonotonicDuration::zero());
}

TEST(StragglerDelayTest, ConstantDelaysAreEqual) {
  const Straggler straggler = Parsed("constant:ms=2.5");
  for (uint64_t step = 0; step < 10; ++step)
    EXPECT_EQ(DelayOf(straggler, kSeed, 3, step), std::chrono::microseconds(2500));
}

TEST(StragglerDelayTest, DelaysDependOnSeedRankAndStepAlone) {
  const Straggler straggler = Parsed("pareto:shape=1.5,scale_ms=5");
  EXPECT_EQ(DelayOf(straggler, 7, 1, 2), DelayOf(Parsed("pareto:scale_ms=5,shape=1.5"), 7, 1, 2));
  EXPECT_NE(DelayOf(straggler, 7, 1, 2), DelayOf(straggler, 8, 1, 2));
  EXPECT_NE(DelayOf(straggler, 7, 1, 2), DelayOf(straggler, 7, 2, 2));
  EXPECT_NE(DelayOf(straggler, 7, 1, 2), DelayOf(straggler, 7, 1, 3));
}

// With 10,000 samples a true distribution is closer than 0.02 with a probability above 0.999.
TEST(StragglerDelayTest, DelaysHaveTheNamedDistributions) {
  const std::vector<double> exponential = Delays(Parsed("exponential:mean_ms=4"), 10'000);
  EXPECT_LT(KolmogorovDistance(exponential, [](double x) { return 1 - std::exp(-x / 4); }), 0.02);
  const std::vector<double> pareto =
      Delays(Parsed("pareto:shape=1.5,scale_ms=5,max_ms=3600000"), 10'000);
  EXPECT_GE(pareto.front(), 5);
  EXPECT_LT(KolmogorovDistance(pareto, [](double x) { return 1 - std::pow(5 / x, 1.5); }), 0.02);
}

TEST(StragglerDelayTest, DelaysAreLimited) {
  EXPECT_EQ(Delays(Parsed("pareto:shape=0.2,scale_ms=5"), 1000).back(), 10'000);
  const std::vector<double> delays = Delays(Parsed("exponential:mean_ms=5,max_ms=2"), 1000);
  EXPECT_EQ(delays.back(), 2);
  EXPECT_LT(delays.front(), 2);
}

TEST(StragglerDelayTest, OnlyNamedRanksWait) {
  const Straggler straggler = Parsed("constant:ms=1,ranks=0+2+8-10");
  std::vector<uint32_t> slow;
  for (uint32_t rank = 0; rank < 12; ++rank) {
    if (DelayOf(straggler, kSeed, rank, 5) > MonotonicDuration::zero()) slow.push_back(rank);
  }
  EXPECT_EQ(slow, (std::vector<uint32_t>{0, 2, 8, 9, 10}));
}

}  // namespace
}  // namespace pawl
