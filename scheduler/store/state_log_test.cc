#include "scheduler/store/state_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

const std::string kMagic(kStateLogMagic, sizeof(kStateLogMagic));

// A log of three records, and the end of each.
struct Example {
  Example() {
    log = kMagic;
    for (const auto& [revision, state] :
         {std::pair<uint64_t, std::string>{1, "first"}, {2, ""}, {9, "the third"}}) {
      AppendStateRecord(revision, state, log);
      ends.push_back(log.size());
    }
  }
  std::string log;
  std::vector<size_t> ends;
};

TEST(StateLogTest, WorkedBytesOfTheDocumentAreRight) {
  std::ifstream document(absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                                      "/scheduler/store/state_log_format.md"));
  ASSERT_TRUE(document.good());
  std::string worked;
  std::string line;
  bool within = false;
  while (std::getline(document, line)) {
    if (absl::StartsWith(line, "## ")) within = line == "## Worked bytes";
    if (!within || !absl::StartsWith(line, "    ")) continue;
    for (const auto word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      if (word.size() != 2 || !isxdigit(word[0]) || !isxdigit(word[1])) break;
      worked += absl::HexStringToBytes(word);
    }
  }
  std::string written = kMagic;
  AppendStateRecord(1, "ab", written);
  AppendStateRecord(258, "", written);
  EXPECT_EQ(absl::BytesToHexString(worked), absl::BytesToHexString(written));
}

TEST(StateLogTest, LastRecordIsNewestState) {
  const Example example;
  const auto parsed = ParseStateLog(example.log);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->newest.revision, 9);
  EXPECT_EQ(parsed->newest.state, "the third");
  EXPECT_EQ(parsed->end, example.log.size());
}

TEST(StateLogTest, TruncatedLogYieldsLastWholeRecord) {
  const Example example;
  for (size_t size = 0; size < example.log.size(); ++size) {
    const auto parsed = ParseStateLog(absl::string_view(example.log).substr(0, size));
    if (size < example.ends[0]) {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << size;
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << size << ": " << parsed.status();
    EXPECT_EQ(parsed->newest.revision, size < example.ends[1] ? 1 : 2) << size;
    EXPECT_EQ(parsed->end, size < example.ends[1] ? example.ends[0] : example.ends[1]) << size;
  }
}

TEST(StateLogTest, FlippedBitBeforeLastRecordIsReportedWithOffset) {
  const Example example;
  for (size_t offset = 0; offset < example.log.size(); ++offset) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = example.log;
      damaged[offset] ^= static_cast<char>(1 << bit);
      const auto parsed = ParseStateLog(damaged);
      if (offset >= example.ends[1]) {
        // Indistinguishable from an interrupted write.
        ASSERT_TRUE(parsed.ok()) << offset << ": " << parsed.status();
        EXPECT_EQ(parsed->newest.revision, 2);
        EXPECT_EQ(parsed->end, example.ends[1]);
        continue;
      }
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << offset << " bit " << bit;
      const size_t record = offset < kMagic.size()     ? 0
                            : offset < example.ends[0] ? kMagic.size()
                                                       : example.ends[0];
      EXPECT_TRUE(
          absl::StrContains(parsed.status().message(), absl::StrCat("offset ", record, ":")))
          << offset << ": " << parsed.status();
    }
  }
}

TEST(StateLogTest, ZerosAndGarbageAtTheEndAreIgnored) {
  const Example example;
  for (const std::string& tail :
       {std::string(1, '\0'), std::string(4096, '\0'), std::string(100, '\xff')}) {
    const auto parsed = ParseStateLog(example.log + tail);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->newest.revision, 9);
    EXPECT_EQ(parsed->end, example.log.size());
  }
}

TEST(StateLogTest, TailLongerThanOneWriteIsRefused) {
  const Example example;
  const auto parsed = ParseStateLog(example.log + std::string(kMaxStateRecordBytes + 1, '\0'));
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << parsed.status();
}

TEST(StateLogTest, RevisionThatDoesNotGrowIsRefused) {
  for (const uint64_t revision : {uint64_t{0}, uint64_t{8}, uint64_t{9}}) {
    Example example;
    AppendStateRecord(revision, "again", example.log);
    const auto parsed = ParseStateLog(example.log);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << parsed.status();
    EXPECT_TRUE(
        absl::StrContains(parsed.status().message(), absl::StrCat("offset ", example.ends[2])))
        << parsed.status();
  }
}

TEST(StateLogTest, OtherFileIsRefused) {
  for (const std::string& log :
       {std::string(), std::string("PAWL"), std::string("PAWLSTA2"), std::string(100, '\0')}) {
    EXPECT_EQ(ParseStateLog(log).status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace pawl
