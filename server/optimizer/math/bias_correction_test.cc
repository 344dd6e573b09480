#include "server/optimizer/math/bias_correction.h"

#include <cmath>

#include "gtest/gtest.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

TEST(BiasCorrectionTest, EqualsTheFormula) {
  constexpr double kBeta1 = 0.9f;
  constexpr double kBeta2 = 0.999f;
  const BiasCorrection correction(kBeta1, kBeta2);
  for (uint64_t prior = 0; prior < 100000; prior += 1 + prior / 3000) {
    const BiasCorrection::Factors factors = correction.At(prior);
    ASSERT_EQ(factors.first, 1.0 / (1.0 - DeterministicPower(kBeta1, prior + 1))) << prior;
    ASSERT_EQ(factors.second, 1.0 / std::sqrt(1.0 - DeterministicPower(kBeta2, prior + 1)))
        << prior;
  }
}

TEST(BiasCorrectionTest, ConvergesToOne) {
  const BiasCorrection correction(0.9, 0.999);
  for (const uint64_t prior : {uint64_t{1} << 20, uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_EQ(correction.At(prior).first, 1.0);
    EXPECT_EQ(correction.At(prior).second, 1.0);
  }
}

TEST(BiasCorrectionTest, BetaZeroNeedsNoCorrection) {
  const BiasCorrection correction(0.0, 0.0);
  EXPECT_EQ(correction.At(0).first, 1.0);
  EXPECT_EQ(correction.At(0).second, 1.0);
}

}  // namespace
}  // namespace pawl
