#include "worker/data/readers/csv_record_reader.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Record = std::vector<std::string>;

std::vector<Record> Records(const std::string& text) {
  MemorySource source(text);
  CsvRecordReader reader(source, "t.csv");
  std::vector<Record> records;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next();
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return records;
    records.emplace_back(reader.fields().begin(), reader.fields().end());
  }
}

// The error of the first refused record.
std::string Error(const std::string& text) {
  MemorySource source(text);
  CsvRecordReader reader(source, "t.csv");
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next();
    if (!more.ok()) {
      EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
      return std::string(more.status().message());
    }
    if (!*more) return "no error";
  }
}

TEST(CsvRecordReaderTest, PlainFieldsAreSplitAtCommas) {
  EXPECT_THAT(Records("a,b,c\n,,\r\n\n x ,y"),
              ElementsAre(Record{"a", "b", "c"}, Record{"", "", ""}, Record{" x ", "y"}));
}

TEST(CsvRecordReaderTest, QuotedFieldsHoldCommasQuotesAndLineBreaks) {
  EXPECT_THAT(Records("\"a,b\",\"say \"\"hi\"\"\",\"\"\n\"two\r\nlines\n\",z\nplain,again\n"),
              ElementsAre(Record{"a,b", "say \"hi\"", ""}, Record{"two\nlines\n", "z"},
                          Record{"plain", "again"}));
}

TEST(CsvRecordReaderTest, ByteOrderMarkIsSkipped) {
  EXPECT_THAT(Records("\xef\xbb\xbf"
                      "a,b\n\xef\xbb\xbf"
                      "c,d"),
              ElementsAre(Record{"a", "b"}, Record{"\xef\xbb\xbf"
                                                   "c",
                                                   "d"}));
}

TEST(CsvRecordReaderTest, MisplacedQuotesAreRefused) {
  EXPECT_EQ(Error("a\nx,y\"z\n"), "t.csv:2:4: a quote in an unquoted field");
  EXPECT_EQ(Error("x,\"y\"z\n"), "t.csv:1:6: text after the closing quote");
  EXPECT_EQ(Error("a\nx,\"y\nz\n"), "t.csv:2:3: the quote is never closed");
}

TEST(CsvRecordReaderTest, RecordOfManyLinesHasALimit) {
  std::string text = "a\n\"";
  const std::string line(1000, 'x');
  for (size_t size = 0; size <= LineReader::kMaxLineBytes; size += line.size()) text += line + "\n";
  EXPECT_THAT(Error(text + "\"\n"),
              HasSubstr("t.csv:2:1: the record that starts here is longer than"));
}

TEST(CsvRecordReaderTest, ErrorsNamePlacesInTheFile) {
  const std::string text = "plain,x,y\n\"q\"\"q\",\"two\nlines\",last,\"end\"\n";
  MemorySource source(text);
  CsvRecordReader reader(source, "t.csv");
  ASSERT_TRUE(*reader.Next());
  EXPECT_EQ(reader.MalformedField(2, "bad").message(), "t.csv:1:9: bad");
  ASSERT_TRUE(*reader.Next());
  EXPECT_EQ(reader.MalformedField(0, "bad").message(), "t.csv:2:1: bad");
  EXPECT_EQ(reader.MalformedField(1, "bad").message(), "t.csv:2:8: bad");
  EXPECT_EQ(reader.MalformedField(2, "bad").message(), "t.csv:3:8: bad");
  EXPECT_EQ(reader.MalformedField(3, "bad").message(), "t.csv:3:13: bad");
  EXPECT_EQ(reader.MalformedRecord("bad").message(), "t.csv:2:1: bad");
}

}  // namespace
}  // namespace pawl
