#include "worker/process/straggler.h"

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
    delays.push_back(Milliseconds(straggler.Delay(kSeed, /*rank=*/0, step)));
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

TEST(StragglerTest, NoTextMeansNoDelay) {
  EXPECT_EQ(Parsed("").Delay(kSeed, 0, 0), MonotonicDuration::zero());
}

TEST(StragglerTest, ConstantDelaysAreEqual) {
  const Straggler straggler = Parsed("constant:ms=2.5");
  for (uint64_t step = 0; step < 10; ++step)
    EXPECT_EQ(straggler.Delay(kSeed, 3, step), std::chrono::microseconds(2500));
}

TEST(StragglerTest, DelaysDependOnSeedRankAndStepAlone) {
  const Straggler straggler = Parsed("pareto:shape=1.5,scale_ms=5");
  EXPECT_EQ(straggler.Delay(7, 1, 2), Parsed("pareto:scale_ms=5,shape=1.5").Delay(7, 1, 2));
  EXPECT_NE(straggler.Delay(7, 1, 2), straggler.Delay(8, 1, 2));
  EXPECT_NE(straggler.Delay(7, 1, 2), straggler.Delay(7, 2, 2));
  EXPECT_NE(straggler.Delay(7, 1, 2), straggler.Delay(7, 1, 3));
}

// With 10,000 samples a true distribution is closer than 0.02 with a probability above 0.999.
TEST(StragglerTest, DelaysHaveTheNamedDistributions) {
  const std::vector<double> exponential = Delays(Parsed("exponential:mean_ms=4"), 10'000);
  EXPECT_LT(KolmogorovDistance(exponential, [](double x) { return 1 - std::exp(-x / 4); }), 0.02);
  const std::vector<double> pareto =
      Delays(Parsed("pareto:shape=1.5,scale_ms=5,max_ms=3600000"), 10'000);
  EXPECT_GE(pareto.front(), 5);
  EXPECT_LT(KolmogorovDistance(pareto, [](double x) { return 1 - std::pow(5 / x, 1.5); }), 0.02);
}

TEST(StragglerTest, DelaysAreLimited) {
  EXPECT_EQ(Delays(Parsed("pareto:shape=0.2,scale_ms=5"), 1000).back(), 10'000);
  const std::vector<double> delays = Delays(Parsed("exponential:mean_ms=5,max_ms=2"), 1000);
  EXPECT_EQ(delays.back(), 2);
  EXPECT_LT(delays.front(), 2);
}

TEST(StragglerTest, OnlyNamedRanksWait) {
  const Straggler straggler = Parsed("constant:ms=1,ranks=0+2+8-10");
  std::vector<uint32_t> slow;
  for (uint32_t rank = 0; rank < 12; ++rank) {
    if (straggler.Delay(kSeed, rank, 5) > MonotonicDuration::zero()) slow.push_back(rank);
  }
  EXPECT_EQ(slow, (std::vector<uint32_t>{0, 2, 8, 9, 10}));
}

TEST(StragglerTest, WrongTextIsRefusedByName) {
  const struct {
    const char* text;
    const char* message;
  } wrong[] = {
      {"gaussian:ms=1", "the kind is \"gaussian\""},
      {"constant", "ms is missing"},
      {"constant:ms=0", "ms=0 is not a number"},
      {"constant:ms=nan", "ms=nan is not a number"},
      {"constant:ms=3600001", "at most 3.6e+06"},
      {"constant:mean_ms=1", "\"mean_ms\" is no setting of constant"},
      {"exponential:ms=1", "\"ms\" is no setting of exponential"},
      {"exponential:mean_ms=1,shape=2", "\"shape\" is no setting of exponential"},
      {"pareto:scale_ms=5", "shape is missing"},
      {"pareto:shape=1.5", "scale_ms is missing"},
      {"pareto:shape=0.01,scale_ms=5", "below 0.1"},
      {"constant:ms=1,ranks=", "ranks="},
      {"constant:ms=1,ranks=3-2", "ranks=3-2"},
      {"constant:ms=1,ranks=0;1", "ranks=0;1"},
  };
  for (const auto& [text, message] : wrong) {
    const absl::StatusOr<Straggler> straggler = ParseStraggler(text);
    EXPECT_EQ(straggler.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(straggler.status().message().find(message), absl::string_view::npos)
        << text << ": " << straggler.status();
  }
}

}  // namespace
}  // namespace pawl
