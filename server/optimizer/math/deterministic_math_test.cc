#include "server/optimizer/math/deterministic_math.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace pawl {
namespace {

void ExpectRelative(double actual, long double expected, double bound, double at) {
  EXPECT_LE(std::fabs(static_cast<double>(actual - expected)),
            bound * std::fabs(static_cast<double>(expected)))
      << "at " << at << ": " << actual;
}

TEST(DeterministicMathTest, LogAgreesWithTheCLibraryWithin1e15) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double mantissa = 1.0 + static_cast<double>(random() >> 12) * 0x1p-52;
    const double x = std::ldexp(mantissa, static_cast<int>(random() % 2000) - 1000);
    ExpectRelative(DeterministicLog(x), std::log(static_cast<long double>(x)), 1e-15, x);
    // Near 1 the logarithm itself is small.
    const double near = 0.5 + mantissa / 3.0;
    ExpectRelative(DeterministicLog(near), std::log(static_cast<long double>(near)), 1e-15, near);
  }
  EXPECT_EQ(DeterministicLog(1.0), 0.0);
  EXPECT_TRUE(std::isnan(DeterministicLog(std::numeric_limits<double>::quiet_NaN())));
  for (const double x : {std::nextafter(1.0, 0.0), std::nextafter(1.0, 2.0)}) {
    ExpectRelative(DeterministicLog(x), std::log(static_cast<long double>(x)), 1e-15, x);
  }
}

TEST(DeterministicMathTest, ExpAgreesWithTheCLibraryWithin1e15) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const double x = static_cast<double>(random() >> 11) * 0x1p-53 * 1416.0 - 708.0;
    ExpectRelative(DeterministicExp(x), std::exp(static_cast<long double>(x)), 1e-15, x);
    const double small = x * 0x1p-9;
    ExpectRelative(DeterministicExp(small), std::exp(static_cast<long double>(small)), 1e-15,
                   small);
  }
  EXPECT_EQ(DeterministicExp(0.0), 1.0);
  EXPECT_EQ(DeterministicExp(-0.0), 1.0);
  EXPECT_EQ(DeterministicExp(-1000.0), 0.0);
  EXPECT_EQ(DeterministicExp(1000.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(DeterministicExp(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_TRUE(std::isnan(DeterministicExp(std::numeric_limits<double>::quiet_NaN())));
}

TEST(DeterministicMathTest, Log1pAgreesWithTheCLibraryWithin1e15) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(random() >> 11) * 0x1p-53, -static_cast<int>(random() % 80));
    ExpectRelative(DeterministicLog1p(x), std::log1p(static_cast<long double>(x)), 1e-15, x);
  }
  EXPECT_EQ(DeterministicLog1p(0.0), 0.0);
}

TEST(DeterministicMathTest, CosPiAgreesWithTheCLibraryWithin1e15) {
  const long double pi = std::acos(-1.0L);
  for (int i = 0; i <= 100000; ++i) {
    const double x = i / 100000.0;
    const long double expected = std::cos(pi * static_cast<long double>(x));
    EXPECT_NEAR(DeterministicCosPi(x), static_cast<double>(expected), 1e-15) << x;
  }
  EXPECT_EQ(DeterministicCosPi(0.0), 1.0);
  EXPECT_EQ(DeterministicCosPi(0.5), 0.0);
  EXPECT_EQ(DeterministicCosPi(1.0), -1.0);
}

TEST(DeterministicMathTest, PowerMultipliesBySquaringFromTheLowestBit) {
  EXPECT_EQ(DeterministicPower(0.9, 0), 1.0);
  EXPECT_EQ(DeterministicPower(0.0, 0), 1.0);
  EXPECT_EQ(DeterministicPower(0.9, 1), 0.9);
  EXPECT_EQ(DeterministicPower(0.5, 1000), std::ldexp(1.0, -1000));
  const double two = 0.999 * 0.999;
  const double four = two * two;
  EXPECT_EQ(DeterministicPower(0.999, 7), (0.999 * two) * four);
  EXPECT_NEAR(DeterministicPower(0.9999, 12345) / std::pow(0.9999, 12345), 1.0, 1e-12);
}

TEST(DeterministicMathTest, InverseNormalGivesKnownQuantiles) {
  EXPECT_EQ(InverseNormal(0.5), 0.0);
  EXPECT_NEAR(InverseNormal(0.975), 1.9599639845400545, 1e-15);
  EXPECT_NEAR(InverseNormal(0.995), 2.5758293035489004, 3e-15);
  // The values that Wichura publishes for checking an implementation.
  EXPECT_NEAR(InverseNormal(0.25), -0.6744897501960817, 1e-15);
  EXPECT_NEAR(InverseNormal(0.001), -3.090232306167814, 3e-15);
  EXPECT_NEAR(InverseNormal(1e-20), -9.262340089798408, 9e-15);
}

TEST(DeterministicMathTest, InverseNormalInvertsTheDistribution) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const double p = (static_cast<double>(random() >> 32) + 0.5) * (i % 2 == 0 ? 0x1p-33 : 0x1p-50);
    const double z = InverseNormal(p);
    const long double back = 0.5L * std::erfc(-static_cast<long double>(z) / std::sqrt(2.0L));
    // An error of z by one part in 10^15 changes p by this much.
    ExpectRelative(p, back, 2e-15 * (1.0 + z * z), p);
    // 1 - p is exact for a p with few bits.
    if (i % 2 == 0) {
      EXPECT_EQ(InverseNormal(1.0 - p), -z);
    }
  }
}

}  // namespace
}  // namespace pawl
