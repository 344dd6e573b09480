#include "worker/data/readers/text_input.h"

#include <charconv>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(TextInputTest, ParsesDecimalNumbers) {
  const std::pair<const char*, double> cases[] = {
      {"0", 0},     {"-0.5", -0.5},
      {"+3", 3},    {"1e3", 1000},
      {"  7\t", 7}, {".5", .5},
      {"5.", 5},    {"1E-2", .01},
      {"007", 7},   {"9007199254740993", 9007199254740992.0},
  };
  for (const auto& [text, expected] : cases) {
    double number = 99;
    EXPECT_TRUE(ParseNumber(text, &number)) << text;
    EXPECT_EQ(number, expected) << text;
  }
}

TEST(TextInputTest, OtherTextIsNotANumber) {
  for (const char* text : {"", " ", "abc", "1x", "1 2", "--1", "+-1", "++1", "nan", "inf", "-inf",
                           "infinity", "1e999", "0x10", "1,5", "+", "-", "e5"}) {
    double number = 0;
    EXPECT_FALSE(ParseNumber(text, &number)) << text;
  }
}

TEST(TextInputTest, FloatsBeyondTheirRangeAreRefused) {
  float number = 0;
  EXPECT_TRUE(ParseFloat("1e38", &number));
  EXPECT_FALSE(ParseFloat("1e39", &number));
}

TEST(TextInputTest, ShortNumbersAreAsExactAsFromChars) {
  // Digits with a point at every place, and with none.
  for (uint64_t digits : {0u, 1u, 7u, 10u, 99u, 123u, 1000001u, 4294967291u}) {
    for (uint64_t seed = 1; seed < 200; ++seed) {
      const std::string text = std::to_string(digits * seed * 7919);
      for (size_t point = 0; point <= text.size() + 1; ++point) {
        std::string with_point = text;
        if (point <= text.size()) with_point.insert(point, ".");
        double number = -1, expected = -2;
        ASSERT_TRUE(ParseNumber(with_point, &number)) << with_point;
        std::from_chars(with_point.data(), with_point.data() + with_point.size(), expected);
        EXPECT_EQ(number, expected) << with_point;
      }
    }
  }
  double number = 0;
  for (const char* text : {"", ".", "..", "1.2.3", "1,5", "-", "1-", "x"})
    EXPECT_FALSE(ParseNumber(text, &number)) << text;
}

}  // namespace
}  // namespace pawl
