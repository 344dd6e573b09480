#include "worker/data/readers/libsvm_reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/readers/testing/read_samples.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

absl::Status Read(const std::string& text, SampleStore* store, uint32_t fields = 0) {
  MemorySource source(text);
  return ReadLibsvm(source, "t.libsvm", fields, store);
}

std::string Error(const std::string& text) {
  SampleStore store(kNoLimit);
  const absl::Status status = Read(text, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(LibsvmReaderTest, ReadsSamples) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("+1 3:0.5 7:1\n"
                   "\n"
                   "# a comment\n"
                   "-1\t7:2  3:1 \r\n"
                   "0.25 # only a label\n"
                   "2 18446744073709551615:1 # the largest index",
                   &store)
                  .ok());
  EXPECT_THAT(store.labels, ElementsAre(1, -1, 0.25, 2));
  EXPECT_THAT(store.sample_begin, ElementsAre(0, 2, 4, 4, 5));
  EXPECT_THAT(store.keys(), ElementsAre(3, 7, 18446744073709551615u));
  EXPECT_THAT(store.entries, ElementsAre(0, 1, 1, 0, 2));
  EXPECT_THAT(store.weights, ElementsAre(0.5, 1, 2, 1, 1));
  EXPECT_EQ(store.shape.field_count, 2u);
  EXPECT_EQ(store.shape.numeric_count, 0u);
}

TEST(LibsvmReaderTest, QueryIdsAreIgnored) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("3 qid:1 4:1\n1 qid:2\n", &store).ok());
  EXPECT_THAT(store.labels, ElementsAre(3, 1));
  EXPECT_THAT(store.keys(), ElementsAre(4));
  EXPECT_THAT(Error("3 4:1 qid:1\n"), HasSubstr("1:7: 'qid:1' is not an index:value pair"));
}

TEST(LibsvmReaderTest, WeightsAreStoredOnlyIfTheyDiffer) {
  SampleStore plain(kNoLimit);
  ASSERT_TRUE(Read("1 3:1 4:1.0\n0 5:1\n", &plain).ok());
  EXPECT_THAT(plain.weights, IsEmpty());
  SampleStore late(kNoLimit);
  ASSERT_TRUE(Read("1 3:1 4:1\n0 5:1 6:3 7:1\n", &late).ok());
  EXPECT_THAT(late.weights, ElementsAre(1, 1, 1, 3, 1));
}

TEST(LibsvmReaderTest, MalformedLineLeavesNoWeights) {
  SampleStore store(kNoLimit);
  EXPECT_FALSE(Read("1 1:1\n1 2:3 x\n", &store).ok());
  EXPECT_EQ(store.entry_count(), 1u);
  EXPECT_THAT(store.weights, IsEmpty());
}

TEST(LibsvmReaderTest, LabelsMayHaveWeights) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("1 3:1\n-1:0.25 qid:7 3:1 4:2\n0:0\n", &store).ok());
  EXPECT_THAT(store.labels, ElementsAre(1, -1, 0));
  EXPECT_THAT(store.sample_weights, ElementsAre(1, 0.25, 0));
  SampleStore plain(kNoLimit);
  ASSERT_TRUE(Read("1:1 3:1\n0 3:1\n", &plain).ok());
  EXPECT_THAT(plain.sample_weights, IsEmpty());
  EXPECT_EQ(Error("1 3:1\n0:-1 3:1\n"),
            "t.libsvm:2:3: the weight '-1' of the sample is not a number of at least 0");
  EXPECT_THAT(Error("0: 3:1\n"), HasSubstr("1:3: the weight ''"));
  EXPECT_THAT(Error("x:1 3:1\n"), HasSubstr("1:1: the label 'x' is not a number"));
  EXPECT_THAT(Error("1:2:3 3:1\n"), HasSubstr("1:3: the weight '2:3'"));
}

TEST(LibsvmReaderTest, FieldsAreAsGivenOrTheLongestLines) {
  SampleStore automatic(kNoLimit);
  ASSERT_TRUE(Read("1 1:1\n1 1:1 2:1 3:1\n", &automatic).ok());
  EXPECT_EQ(automatic.shape.field_count, 3u);
  SampleStore asked(kNoLimit);
  ASSERT_TRUE(Read("1 1:1\n1 1:1 2:1 3:1\n", &asked, 2).ok());
  EXPECT_EQ(asked.shape.field_count, 2u);
  SampleStore bare(kNoLimit);
  ASSERT_TRUE(Read("1\n", &bare).ok());
  EXPECT_EQ(bare.shape.field_count, 1u);
}

TEST(LibsvmReaderTest, MalformedLinesNameFileLineAndColumn) {
  EXPECT_EQ(Error("1 1:1\nabc 1:1\n"), "t.libsvm:2:1: the label 'abc' is not a number");
  EXPECT_EQ(Error("1 1:1 2:x\n"), "t.libsvm:1:7: '2:x' is not an index:value pair");
  EXPECT_EQ(Error("1 1:1\n\n1  1"), "t.libsvm:3:4: '1' is not an index:value pair");
  for (const char* word : {":1", "1:", "-1:1", "x:1", "1:nan", "1:inf", "1:1e39", "1:1:1",
                           "18446744073709551616:1", "1.5:1", "qid:x", "1\x01:1"}) {
    EXPECT_THAT(Error(std::string("1 ") + word), HasSubstr("t.libsvm:1:3: ")) << word;
  }
  EXPECT_THAT(Error("nan 1:1"), HasSubstr("t.libsvm:1:1: the label"));
}

TEST(LibsvmReaderTest, BadBytesAreShownEscapedAndShortened) {
  EXPECT_EQ(Error("1 \x1b[2J" + std::string(100, 'x')),
            "t.libsvm:1:3: '\\x1b[2J" + std::string(36, 'x') + "...' is not an index:value pair");
}

TEST(LibsvmReaderTest, TooManyPairsAreRefused) {
  std::string line = "1";
  for (uint32_t i = 0; i <= kMaxLibsvmPairs; ++i) line += " 1:1";
  EXPECT_THAT(Error(line), HasSubstr("more than 65536 pairs"));
}

TEST(LibsvmReaderTest, TooManyAutomaticFieldsAreRefusedWithAdvice) {
  std::string line = "1";
  for (uint32_t i = 0; i <= SampleStore::kMaxFields; ++i) line += " 1:1";
  EXPECT_THAT(Error(line), HasSubstr("set data.libsvm_fields"));
  SampleStore store(kNoLimit);
  EXPECT_TRUE(Read(line, &store, 1).ok());
}

TEST(LibsvmReaderTest, MemoryLimitIsRespected) {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "1 " + std::to_string(i) + ":1\n";
  SampleStore store(100000);
  const absl::Status status = Read(text, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("t.libsvm"));
  EXPECT_LT(store.memory_bytes(), 400000u);
}

}  // namespace
}  // namespace pawl
