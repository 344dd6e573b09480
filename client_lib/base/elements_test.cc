#include "client_lib/base/elements.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "client_lib/base/half.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

// The value of a 16-bit number by its definition: sign, (1 or 0 and) fraction, exponent.
double Worth(uint32_t half, int fraction_bits, int exponent_bits) {
  const double sign = half >> 15 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(half >> fraction_bits & ((1u << exponent_bits) - 1));
  const double fraction = std::ldexp(half & ((1u << fraction_bits) - 1), -fraction_bits);
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * INFINITY : std::nan("");
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1 + fraction, exponent - bias);
}

struct Format {
  ElementType type;
  int fraction_bits;
  int exponent_bits;
  uint16_t (*half_of)(float);
  float (*float_of)(uint16_t);
};
constexpr Format kFormats[] = {{BFLOAT16, 7, 8, Bfloat16Of, FloatOfBfloat16},
                               {FLOAT16, 10, 5, Float16Of, FloatOfFloat16}};

TEST(ElementsTest, All65536NumbersMatchTheirDefinition) {
  for (const Format& format : kFormats) {
    std::vector<uint16_t> halves(65536), back(65536);
    for (uint32_t i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> floats(65536);
    DecodeElements(format.type, halves.data(), 65536, floats.data());
    EncodeElements(format.type, floats.data(), 65536, back.data());
    for (uint32_t i = 0; i < 65536; ++i) {
      const double worth = Worth(i, format.fraction_bits, format.exponent_bits);
      if (std::isnan(worth)) {
        EXPECT_TRUE(std::isnan(floats[i])) << i;
        EXPECT_TRUE(std::isnan(Worth(back[i], format.fraction_bits, format.exponent_bits))) << i;
      } else {
        EXPECT_EQ(floats[i], worth) << i;
        EXPECT_EQ(std::signbit(floats[i]), i >> 15 == 1) << i;
        EXPECT_EQ(back[i], i);
      }
      // The vector code gives the same bits as single conversions, for NaN too.
      const float one = format.float_of(static_cast<uint16_t>(i));
      EXPECT_EQ(std::memcmp(&one, &floats[i], sizeof(one)), 0) << i;
      EXPECT_EQ(format.half_of(floats[i]), back[i]) << i;
    }
  }
}

// Rounds a number between two neighbours to the nearer one, and the middle to the one whose last
// bit is 0.
TEST(ElementsTest, RoundsToNearestAndTiesToEven) {
  for (const Format& format : kFormats) {
    const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
    for (uint32_t i = 0; i < infinity; ++i) {
      const double low = Worth(i, format.fraction_bits, format.exponent_bits);
      // The number that would follow the largest.
      const double high = i + 1 < infinity
                              ? Worth(i + 1, format.fraction_bits, format.exponent_bits)
                              : std::ldexp(1, (1 << (format.exponent_bits - 1)));
      const float middle = static_cast<float>((low + high) / 2);
      // BFLOAT16's subnormal numbers are subnormal in binary32 too; the middle may be the only
      // float between two of them.
      ASSERT_EQ(middle, (low + high) / 2) << i;
      const uint32_t even = i % 2 == 0 ? i : i + 1;
      for (const uint32_t sign : {0u, 0x8000u}) {
        const auto half = [&](float x) { return format.half_of(sign ? -x : x); };
        EXPECT_EQ(half(middle), even | sign) << i;
        EXPECT_EQ(half(std::nextafter(middle, 0.0f)), i | sign) << i;
        EXPECT_EQ(half(std::nextafter(middle, INFINITY)), (i + 1) | sign) << i;
      }
    }
    const float floats[] = {
        std::numeric_limits<float>::max(), INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f};
    uint16_t halves[6];
    EncodeElements(format.type, floats, 6, halves);
    EXPECT_EQ(halves[0], infinity);
    EXPECT_EQ(halves[1], infinity);
    EXPECT_EQ(halves[2], infinity | 0x8000u);
    EXPECT_EQ(halves[3], 0u);
    EXPECT_EQ(halves[4], 0x8000u);
    EXPECT_EQ(halves[5], 0u);
  }
}

// Lengths around those of vectors, at odd addresses; nothing may be written beyond.
TEST(ElementsTest, ResultIsIndependentOfLengthAndAlignment) {
  std::vector<float> floats(100);
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] = std::ldexp(1.0f + i / 77.0f, static_cast<int>(i) / 3 - 20);
  for (const Format& format : kFormats) {
    for (size_t count = 0; count <= 70; ++count) {
      for (const size_t shift : {0, 1, 3}) {
        std::vector<char> from(count * 4 + shift), to(count * 2 + shift + 1, 'x'),
            back(count * 4 + shift + 1, 'x');
        if (count > 0) std::memcpy(from.data() + shift, floats.data(), count * 4);
        EncodeElements(format.type, from.data() + shift, count, to.data() + shift);
        DecodeElements(format.type, to.data() + shift, count, back.data() + shift);
        EXPECT_EQ(to.back(), 'x');
        EXPECT_EQ(back.back(), 'x');
        std::vector<float> rounded(count + 1, -1);
        RoundElements(format.type, floats.data(), count, rounded.data());
        EXPECT_EQ(rounded.back(), -1);
        for (size_t i = 0; i < count; ++i) {
          float value;
          std::memcpy(&value, back.data() + shift + i * 4, 4);
          ASSERT_EQ(value, format.float_of(format.half_of(floats[i])));
          ASSERT_EQ(rounded[i], value);
        }
      }
    }
  }
}

// The largest number, and a number 2^20 times smaller, keep as many digits as FLOAT16 has, whatever
// the largest is.
TEST(ElementsTest, ExponentGivesFloat16TheRangeOfFloats) {
  for (int power = -149; power <= 127; ++power) {
    // 11 digits, as FLOAT16 has.
    const float largest = std::ldexp(1.0f + 1023 / 1024.0f, power);
    const std::vector<float> floats = {largest, -largest / 3, std::ldexp(largest, -20),
                                       0,       -INFINITY,    std::nanf("")};
    ASSERT_EQ(LargestFinite(floats.data(), floats.size()), largest);
    const int32_t exponent = ElementExponentFor(FLOAT16, largest);
    ASSERT_TRUE(IsElementExponent(FLOAT16, exponent)) << power;
    if (power >= -111 && power <= 126) {
      EXPECT_EQ(exponent, power - 14);
    }
    uint16_t halves[6];
    float back[6];
    EncodeElements(FLOAT16, floats.data(), 6, halves, exponent);
    DecodeElements(FLOAT16, halves, 6, back, exponent);
    EXPECT_EQ(back[0], floats[0]) << power;
    // The fraction of 11 digits, or of as many as such a small float has.
    EXPECT_NEAR(back[1], floats[1], std::max(std::ldexp(largest, -12), 0.0f)) << power;
    if (power >= -100) {
      EXPECT_EQ(back[2], floats[2]) << power;
    }
    EXPECT_EQ(back[3], 0) << power;
    EXPECT_EQ(back[4], -INFINITY) << power;
    EXPECT_TRUE(std::isnan(back[5])) << power;
  }
}

// All decoders get the same bits, and a finite gradient stays finite.
TEST(ElementsTest, ExponentsNeitherRoundNorOverflow) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < 65536; ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(65536);
  for (const int32_t exponent : {kMinElementExponent, -1, 1, kMaxElementExponent}) {
    DecodeElements(FLOAT16, halves.data(), 65536, floats.data(), exponent);
    for (uint32_t i = 0; i < 65536; ++i) {
      const double worth = Worth(i, 10, 5);
      if (std::isnan(worth)) continue;
      ASSERT_EQ(floats[i], std::ldexp(worth, exponent)) << i;
    }
  }
  for (const int32_t exponent :
       {kMinElementExponent - 1, kMaxElementExponent + 1, INT32_MIN, INT32_MAX}) {
    EXPECT_FALSE(IsElementExponent(FLOAT16, exponent));
  }
  for (const ElementType type : {ELEMENT_TYPE_UNSPECIFIED, FLOAT32, BFLOAT16}) {
    EXPECT_TRUE(IsElementExponent(type, 0));
    EXPECT_FALSE(IsElementExponent(type, 1));
    EXPECT_EQ(ElementExponentFor(type, 1e-8f), 0);
  }
  EXPECT_EQ(ElementExponentFor(FLOAT16, 0), 0);
}

// All upper halves of a float's bits with lower halves around the rounding boundaries, NaN
// included; all 16-bit numbers; exponents up to their limits.
TEST(ElementsTest, PortableCodeGivesTheSameBits) {
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    halves.push_back(static_cast<uint16_t>(upper));
    for (const uint32_t lower :
         {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x5a5au, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(FloatOfBits(upper << 16 | lower));
    }
  }
  const auto expect_same = [](const auto& one, const auto& other, int type, int exponent) {
    ASSERT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(one[0])), 0)
        << type << " " << exponent;
  };
  for (const ElementType type : {BFLOAT16, FLOAT16}) {
    for (const int32_t exponent : {0, kMinElementExponent, -14, 9, kMaxElementExponent}) {
      if (!IsElementExponent(type, exponent)) continue;
      std::vector<uint16_t> encoded(floats.size()), portably_encoded(floats.size());
      EncodeElements(type, floats.data(), floats.size(), encoded.data(), exponent);
      portable::EncodeElements(type, floats.data(), floats.size(), portably_encoded.data(),
                               exponent);
      expect_same(encoded, portably_encoded, type, exponent);
      std::vector<float> decoded(halves.size()), portably_decoded(halves.size());
      DecodeElements(type, halves.data(), halves.size(), decoded.data(), exponent);
      portable::DecodeElements(type, halves.data(), halves.size(), portably_decoded.data(),
                               exponent);
      expect_same(decoded, portably_decoded, type, exponent);
    }
    std::vector<float> rounded(floats.size()), portably_rounded(floats.size());
    RoundElements(type, floats.data(), floats.size(), rounded.data());
    portable::RoundElements(type, floats.data(), floats.size(), portably_rounded.data());
    expect_same(rounded, portably_rounded, type, 0);
  }
  for (size_t end = 0; end < floats.size(); end += 997) {
    ASSERT_EQ(LargestFinite(floats.data(), end), portable::LargestFinite(floats.data(), end))
        << end;
  }
}

TEST(ElementsTest, LargestFiniteIsFoundAtAnyPosition) {
  for (size_t count = 0; count <= 70; ++count) {
    std::vector<float> floats(count, -0.5f);
    EXPECT_EQ(LargestFinite(floats.data(), count), count == 0 ? 0 : 0.5f);
    for (size_t at = 0; at < count; ++at) {
      floats.assign(count, 1);
      floats[at] = -3;
      if (at > 0) floats[at - 1] = INFINITY;
      EXPECT_EQ(LargestFinite(floats.data(), count), 3);
    }
  }
  const float none[] = {INFINITY, -INFINITY, std::nanf("")};
  EXPECT_EQ(LargestFinite(none, 3), 0);
}

TEST(ElementsTest, Float32IsCopiedAndUnknownTypesAreRejected) {
  const float floats[] = {1.00000012f, -3};
  for (const ElementType type : {ELEMENT_TYPE_UNSPECIFIED, FLOAT32}) {
    float copy[2], back[2];
    EncodeElements(type, floats, 2, copy);
    DecodeElements(type, copy, 2, back);
    EXPECT_EQ(std::memcmp(floats, back, sizeof(floats)), 0);
    EXPECT_EQ(ElementBytes(type), 4u);
  }
  EXPECT_EQ(ElementBytes(BFLOAT16), 2u);
  EXPECT_EQ(ElementBytes(FLOAT16), 2u);
  for (const int type : {0, 1, 2, 3}) EXPECT_TRUE(IsElementType(static_cast<ElementType>(type)));
  for (const int type : {-1, 4, 9}) EXPECT_FALSE(IsElementType(static_cast<ElementType>(type)));
}

}  // namespace
}  // namespace pawl
