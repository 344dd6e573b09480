#include "server/optimizer/gradient_pass.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

template <bool kPrepared>
double Portable(const GradientPass& pass, const char* gradient, size_t count,
                const float* weights) {
  return SumOfSquares<GradientMode::kRegularized, kPrepared>(pass, gradient, count, weights);
}
template <bool kPrepared>
PAWL_TARGET_AVX2 double Avx2(const GradientPass& pass, const char* gradient, size_t count,
                             const float* weights) {
  return SumOfSquares<GradientMode::kRegularized, kPrepared>(pass, gradient, count, weights);
}
template <bool kPrepared>
PAWL_TARGET_AVX512 double Avx512(const GradientPass& pass, const char* gradient, size_t count,
                                 const float* weights) {
  return SumOfSquares<GradientMode::kRegularized, kPrepared>(pass, gradient, count, weights);
}

template <bool kPrepared>
double Sum(Isa isa, const GradientPass& pass, const char* gradient, size_t count,
           const float* weights) {
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return Avx2<kPrepared>(pass, gradient, count, weights);
    case Isa::kAvx512:
      return Avx512<kPrepared>(pass, gradient, count, weights);
  }
  return Portable<kPrepared>(pass, gradient, count, weights);
}

// Adds element i to lane i % 16, then combines the lanes at distances 8, 4, 2 and 1: README.md.
double SumInLanes(const std::vector<float>& values) {
  double lanes[16] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    lanes[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (const size_t distance : {8, 4, 2, 1}) {
    for (size_t j = 0; j < distance; ++j) lanes[j] += lanes[j + distance];
  }
  return lanes[0];
}

// Compares the bits of the double sum: rounding to float would hide most differences of order.
TEST(GradientPassTest, SumOfSquaresUsesSixteenLanes) {
  std::mt19937 random(17);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const GradientPass pass = {0.7f, 0.6f, 0.9f, 0.01f, 0.3f, 1.0f};
  for (size_t count = 0; count <= 500; count += count < 80 ? 1 : 37) {
    std::vector<float> gradient(count);
    std::vector<float> weights(count);
    std::vector<float> clipped(count);
    std::vector<float> prepared(count);
    std::vector<char> bytes(count * sizeof(float) + 1);
    for (size_t i = 0; i < count; ++i) {
      gradient[i] = uniform(random);
      weights[i] = i % 7 == 0 ? 0.0f : uniform(random);
      const float g = gradient[i] * 0.7f;
      clipped[i] = g < -0.6f ? -0.6f : g > 0.6f ? 0.6f : g;
      const float sign = weights[i] > 0.0f ? 1.0f : weights[i] < 0.0f ? -1.0f : 0.0f;
      prepared[i] = clipped[i] * 0.9f + (0.3f * weights[i] + 0.01f * sign);
      std::memcpy(bytes.data() + 1 + i * sizeof(float), &gradient[i], sizeof(float));
    }
    for (const Isa isa : SupportedIsas()) {
      EXPECT_EQ(Sum<false>(isa, pass, bytes.data() + 1, count, weights.data()), SumInLanes(clipped))
          << IsaName(isa) << ", " << count;
      EXPECT_EQ(Sum<true>(isa, pass, bytes.data() + 1, count, weights.data()), SumInLanes(prepared))
          << IsaName(isa) << ", " << count;
    }
  }
}

TEST(GradientPassTest, DisabledOperationsChangeNoBits) {
  const GradientPass off = {1.0f, std::numeric_limits<float>::infinity(), 1.0f, 0.0f, 0.0f, 1.0f};
  for (const float value : {1.0f, -0.1f, 1e-40f, -3e38f, 0.0f, -0.0f}) {
    const float g = Prepared<GradientMode::kClipped, float>(off, value, 0.0f);
    EXPECT_EQ(std::memcmp(&g, &value, sizeof g), 0) << value;
  }
}

}  // namespace
}  // namespace pawl
