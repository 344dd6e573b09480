#include "worker/data/readers/line_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a few bytes at a time, as a file or a decompressor may.
class TrickleSource final : public ByteSource {
 public:
  TrickleSource(absl::string_view bytes, size_t piece) : memory_(bytes), piece_(piece) {}
  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    return memory_.Read(out, std::min(size, piece_));
  }

 private:
  MemorySource memory_;
  const size_t piece_;
};

std::vector<std::string> Lines(absl::string_view text, size_t piece = 1 << 30) {
  TrickleSource source(text, piece);
  LineReader reader(source, "f");
  std::vector<std::string> lines;
  absl::string_view line;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&line);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return lines;
    lines.emplace_back(line);
    EXPECT_EQ(reader.line_number(), lines.size());
  }
}

TEST(LineReaderTest, ReadsBothLineEndsAndAnUnterminatedLine) {
  EXPECT_THAT(Lines(""), IsEmpty());
  EXPECT_THAT(Lines("\n"), ElementsAre(""));
  EXPECT_THAT(Lines("a"), ElementsAre("a"));
  EXPECT_THAT(Lines("a\nb\r\n\nc\r"), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(Lines("a\rb\n"), ElementsAre("a\rb"));
}

TEST(LineReaderTest, PieceSizeDoesNotMatter) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 2000; ++i) {
    expected.push_back(std::string(static_cast<size_t>(i % 97), 'x') + std::to_string(i));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  for (const size_t piece : {1, 2, 100, 4096}) EXPECT_EQ(Lines(text, piece), expected) << piece;
}

TEST(LineReaderTest, LongestLineIsReadAndALongerOneRefused) {
  const std::string longest(LineReader::kMaxLineBytes, 'x');
  EXPECT_THAT(Lines(absl::StrCat(longest, "\r\n", longest, "\nb")),
              ElementsAre(longest, longest, "b"));
  for (const std::string& end : {std::string(), std::string("\n"), std::string("\r\n"),
                                 absl::StrCat("and more than both buffers", longest, longest)}) {
    const std::string text = absl::StrCat("a\n", longest, "y", end);
    MemorySource source(text);
    LineReader reader(source, "f.csv");
    absl::string_view line;
    ASSERT_TRUE(*reader.Next(&line));
    const absl::Status status = reader.Next(&line).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("f.csv:2:1: the line is longer than 1048576 bytes"));
  }
}

}  // namespace
}  // namespace pawl
