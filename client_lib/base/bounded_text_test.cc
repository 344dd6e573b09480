#include "client_lib/base/bounded_text.h"

#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(BoundedTextTest, TextIsTruncatedBetweenCharacters) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  const size_t boundaries[] = {0, 1, 3, 6, 10};
  for (size_t max = 0; max <= text.size() + 1; ++max) {
    size_t expected = 0;
    for (const size_t boundary : boundaries) {
      if (boundary <= max) expected = boundary;
    }
    EXPECT_EQ(BoundedText(text, max), text.substr(0, expected)) << max;
  }
}

TEST(BoundedTextTest, InvalidUtf8BytesAreReplaced) {
  EXPECT_EQ(BoundedText("a\xff"
                        "b\x80",
                        100),
            "a?b?");
  EXPECT_EQ(BoundedText("\xc3(", 100), "?(") << "the second byte is missing";
  EXPECT_EQ(BoundedText("\xe2\x82", 100), "??") << "the last byte is missing";
  EXPECT_EQ(BoundedText("\xc0\xaf", 100), "??") << "overlong";
  EXPECT_EQ(BoundedText("\xe0\x80\xaf", 100), "???") << "overlong";
  EXPECT_EQ(BoundedText("\xed\xa0\x80", 100), "???") << "a surrogate";
  EXPECT_EQ(BoundedText("\xf4\x90\x80\x80", 100), "????") << "beyond U+10FFFF";
  EXPECT_EQ(BoundedText("\xed\x9f\xbf\xf4\x8f\xbf\xbf", 100), "\xed\x9f\xbf\xf4\x8f\xbf\xbf");
}

TEST(BoundedTextTest, ControlCharactersAreReplaced) {
  EXPECT_EQ(BoundedText("one\ttwo\nthree", 100), "one\ttwo\nthree");
  EXPECT_EQ(BoundedText(absl::string_view("\x1b[2J\r\0\x7f", 7), 100), "?[2J???");
  EXPECT_TRUE(HasControlCharacters("a\nb"));
  EXPECT_TRUE(HasControlCharacters("\x1b[2J"));
  EXPECT_TRUE(HasControlCharacters("\x7f"));
  EXPECT_FALSE(HasControlCharacters("h\xc3\xb6st:1"));
}

}  // namespace
}  // namespace pawl
