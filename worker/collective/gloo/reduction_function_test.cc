#include "worker/collective/gloo/reduction_function.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// The value by the formats' definitions: sign, exponent, mantissa.
double ValueOf(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

void ExpectExactWidening(float (*widen)(uint16_t), uint16_t (*narrow)(float), int exponent_bits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    const double value = ValueOf(stored, exponent_bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(widen(stored))) << bits;
      ASSERT_TRUE(std::isnan(ValueOf(narrow(widen(stored)), exponent_bits))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(widen(stored)), value) << bits;
    ASSERT_EQ(std::signbit(widen(stored)), std::signbit(value)) << bits;
    ASSERT_EQ(narrow(widen(stored)), stored);
  }
}

// Checks rounding between two neighbours: to the nearer one, and midway to the even one.
void ExpectRoundingToNearestEven(float (*widen)(uint16_t), uint16_t (*narrow)(float),
                                 uint16_t infinity) {
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle = widen(low) + (widen(high) - widen(low)) / 2;
    ASSERT_EQ(narrow(middle), low % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, HUGE_VALF)), high) << bits;
    ASSERT_EQ(narrow(-middle), (low % 2 == 0 ? low : high) | 0x8000) << bits;
  }
}

TEST(ReductionFunctionTest, Float16RoundsToNearest) {
  ExpectExactWidening(FloatOfFloat16, Float16OfFloat, 5);
  ExpectRoundingToNearestEven(FloatOfFloat16, Float16OfFloat, 0x7c00);
  EXPECT_EQ(Float16OfFloat(65519.996f), 0x7bff);
  EXPECT_EQ(Float16OfFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Float16OfFloat(1e30f), 0x7c00);
  EXPECT_EQ(Float16OfFloat(-1e-30f), 0x8000);
}

TEST(ReductionFunctionTest, Bfloat16RoundsToNearest) {
  ExpectExactWidening(FloatOfBfloat16, Bfloat16OfFloat, 8);
  ExpectRoundingToNearestEven(FloatOfBfloat16, Bfloat16OfFloat, 0x7f80);
  EXPECT_EQ(Bfloat16OfFloat(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(ReductionFunctionTest, SmallFloatsAreAddedInFloat32AndRoundedOnce) {
  std::mt19937 random(7);
  for (const CollectiveType type : {CollectiveType::kFloat16, CollectiveType::kBfloat16}) {
    const bool half = type == CollectiveType::kFloat16;
    std::vector<uint16_t> a(1001), b(1001), sum(1001);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<uint16_t>(random() % 0x7000);
      b[i] = static_cast<uint16_t>(random() % 0x7000);
    }
    FindReductionFunction(type, Reduction::kSum)(sum.data(), a.data(), b.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const float exact = half ? FloatOfFloat16(a[i]) + FloatOfFloat16(b[i])
                               : FloatOfBfloat16(a[i]) + FloatOfBfloat16(b[i]);
      ASSERT_EQ(sum[i], half ? Float16OfFloat(exact) : Bfloat16OfFloat(exact)) << i;
    }
  }
}

TEST(ReductionFunctionTest, IntegersWrapAroundAndKeepTheirSigns) {
  const int8_t a[] = {127, -128, -5, 16}, b[] = {1, -1, 3, 16};
  int8_t out[4];
  FindReductionFunction(CollectiveType::kInt8, Reduction::kSum)(out, a, b, 4);
  EXPECT_EQ(std::vector<int8_t>(out, out + 4), (std::vector<int8_t>{-128, 127, -2, 32}));
  FindReductionFunction(CollectiveType::kInt8, Reduction::kMin)(out, a, b, 4);
  EXPECT_EQ(std::vector<int8_t>(out, out + 4), (std::vector<int8_t>{1, -128, -5, 16}));
  FindReductionFunction(CollectiveType::kInt8, Reduction::kProduct)(out, a, b, 4);
  EXPECT_EQ(std::vector<int8_t>(out, out + 4), (std::vector<int8_t>{127, -128, -15, 0}));
  const int64_t c[] = {std::numeric_limits<int64_t>::max()}, d[] = {2};
  int64_t wide[1];
  FindReductionFunction(CollectiveType::kInt64, Reduction::kSum)(wide, c, d, 1);
  EXPECT_EQ(wide[0], std::numeric_limits<int64_t>::min() + 1);
  FindReductionFunction(CollectiveType::kInt64, Reduction::kMax)(wide, c, d, 1);
  EXPECT_EQ(wide[0], c[0]);
}

TEST(ReductionFunctionTest, OutputMayBeEitherInput) {
  std::vector<float> a(67, 2), b(67, 3);
  const ReductionFunction product =
      FindReductionFunction(CollectiveType::kFloat32, Reduction::kProduct);
  product(a.data(), a.data(), b.data(), a.size());
  EXPECT_EQ(a, std::vector<float>(67, 6));
  product(b.data(), a.data(), b.data(), a.size());
  EXPECT_EQ(b, std::vector<float>(67, 18));
}

TEST(ReductionFunctionTest, UnknownTypeOrReductionHasNoFunction) {
  EXPECT_EQ(FindReductionFunction(static_cast<CollectiveType>(99), Reduction::kSum), nullptr);
  EXPECT_EQ(FindReductionFunction(CollectiveType::kFloat32, static_cast<Reduction>(99)), nullptr);
}

}  // namespace
}  // namespace pawl
