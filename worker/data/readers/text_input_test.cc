#include "worker/data/readers/text_input.h"

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

}  // namespace
}  // namespace pawl
