#include "server/storage/wal/log_reader.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/worked_bytes.h"
#include "server/storage/wal/log_writer.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 77;
constexpr char kSegment1[] = "/log/0000000001.log";
constexpr char kSegment2[] = "/log/0000000002.log";

QueuedRecord Data(uint32_t partition, uint64_t index, const std::string& payload) {
  auto owner = std::make_shared<const std::string>(payload);
  return {RecordType::kData,
          partition,
          index,
          /*term=*/9,
          ByteView(owner->data(), owner->size()),
          owner,
          std::nullopt,
          0};
}

class LogReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.MakeFolder("/log").ok());
    Begin({});
  }
  void Begin(LogWriter::End end) {
    writer_ = std::make_unique<LogWriter>(
        env_, LogWriter::Options{"/log", kJobId, true, segment_bytes_}, std::move(end));
  }
  absl::Status Write(std::vector<QueuedRecord> records) {
    return writer_->WriteGroup(absl::MakeSpan(records));
  }
  absl::StatusOr<LogSegment> ReadLast(uint64_t segment = 1) {
    return ReadLastSegment(env_, "/log", kJobId, segment);
  }
  static std::vector<uint64_t> Indices(const LogSegment& segment) {
    std::vector<uint64_t> indices;
    for (const LogRecord& record : segment.records) {
      if (record.type == RecordType::kData) indices.push_back(record.index);
    }
    return indices;
  }
  void ExpectDamaged(const absl::Status& status, absl::string_view path, uint64_t offset) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  absl::StrCat(path, " is damaged at offset ", offset, ":")))
        << status;
  }

  uint64_t segment_bytes_ = 64u << 20;
  FaultEnv env_{1};
  std::unique_ptr<LogWriter> writer_;
};

TEST_F(LogReaderTest, FragmentedRecordsAreReadBack) {
  std::string piece1 = "ab", piece2, piece3 = "cde";
  ByteView pieces;
  for (const std::string* piece : {&piece1, &piece2, &piece3})
    pieces.Append(piece->data(), piece->size());
  const QueuedRecord record = {RecordType::kData, 4, 8, 0, pieces, nullptr, std::nullopt, 0};
  ASSERT_TRUE(Write({Data(3, 7, "seven"), record}).ok());
  ASSERT_TRUE(Write({Data(3, 8, "")}).ok());
  const LogSegment segment = ReadLast().value();
  ASSERT_EQ(segment.records.size(), 5u);
  EXPECT_EQ(segment.records[0].type, RecordType::kReached);
  EXPECT_EQ(segment.records[1].partition, 3u);
  EXPECT_EQ(segment.records[1].index, 7u);
  EXPECT_EQ(segment.records[1].term, 9u);
  EXPECT_EQ(segment.records[1].payload, "seven");
  EXPECT_EQ(segment.records[2].partition, 4u);
  EXPECT_EQ(segment.records[2].payload, "abcde");
  EXPECT_EQ(segment.records[3].type, RecordType::kSettled)
      << "a segment exists only with its first group";
  EXPECT_EQ(segment.records[4].payload, "");
  EXPECT_EQ(segment.torn_bytes, 0u);
  EXPECT_EQ(segment.settled, segment.records[3].offset)
      << "the last group is not known to be settled";
  writer_->MarkSettled();
  const LogSegment marked = ReadLast().value();
  EXPECT_EQ(marked.settled, marked.records.back().offset);
  EXPECT_EQ(marked.records.back().type, RecordType::kSettled);
}

TEST_F(LogReaderTest, RecordsOfAllSizesAreReadBack) {
  std::vector<QueuedRecord> group;
  for (const size_t size : {0, 1, 511, 512, 513, 3, 70'000, 0, 2})
    group.push_back(
        Data(3, group.size() + 1, std::string(size, static_cast<char>('a' + size % 26))));
  // The second group is in the open segment and is smaller than the first.
  ASSERT_TRUE(Write(group).ok());
  ASSERT_TRUE(Write({Data(3, 10, "x"), Data(3, 11, std::string(600, 'y')), Data(3, 12, "z")}).ok());
  const LogSegment segment = ReadLast().value();
  EXPECT_EQ(segment.torn_bytes, 0u);
  std::vector<std::string> payloads;
  for (const LogRecord& record : segment.records) {
    if (record.type == RecordType::kData) payloads.emplace_back(record.payload);
  }
  std::vector<std::string> expected;
  for (const QueuedRecord& record : group) {
    expected.emplace_back(record.payload.size(), '\0');
    record.payload.CopyTo(expected.back().data());
  }
  expected.insert(expected.end(), {"x", std::string(600, 'y'), "z"});
  EXPECT_EQ(payloads, expected);
}

TEST_F(LogReaderTest, TruncationLeavesTheWholeRecordsBeforeIt) {
  for (uint64_t i = 1; i <= 5; ++i) ASSERT_TRUE(Write({Data(0, i, std::string(i, 'x'))}).ok());
  const std::string contents = env_.Contents(kSegment1);
  const std::vector<LogRecord> records = ReadLast()->records;
  for (size_t size = kSegmentHeaderBytes; size <= contents.size(); ++size) {
    for (const size_t zeros : {size_t{0}, size_t{1}, size_t{100}}) {
      const std::string truncated = contents.substr(0, size) + std::string(zeros, '\0');
      env_.SetContents(kSegment1, truncated);
      const LogSegment segment = ReadLast().value();
      uint64_t whole = 0, end = kSegmentHeaderBytes;
      for (const LogRecord& record : records) {
        const uint64_t record_end = record.offset + kRecordHeaderBytes + record.payload.size();
        // The zeros may equal the truncated bytes.
        if (record_end > truncated.size() ||
            truncated.compare(0, record_end, contents, 0, record_end) != 0)
          break;
        end = record_end;
        if (record.type == RecordType::kData) whole = record.index;
      }
      EXPECT_EQ(Indices(segment).size(), whole);
      EXPECT_EQ(segment.end, end);
      EXPECT_EQ(segment.torn_bytes, size + zeros - end);
    }
  }
}

TEST_F(LogReaderTest, FlippedByteOfASettledLogIsDetected) {
  ASSERT_TRUE(Write({Data(0, 1, "first")}).ok());
  ASSERT_TRUE(Write({Data(1, 1, "second"), Data(0, 2, "third")}).ok());
  ASSERT_TRUE(Write({Data(0, 3, "fourth")}).ok());
  writer_->MarkSettled();
  const std::string contents = env_.Contents(kSegment1);
  const LogSegment whole = ReadLast().value();
  for (size_t i = 0; i < contents.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string flipped = contents;
      flipped[i] ^= flip;
      env_.SetContents(kSegment1, flipped);
      const absl::StatusOr<LogSegment> segment = ReadLast();
      if (i < whole.settled) {
        uint64_t offset = 0;
        for (const LogRecord& record : whole.records) {
          if (record.offset <= i) offset = record.offset;
        }
        ExpectDamaged(segment.status(), kSegment1, offset);
      } else {
        ASSERT_TRUE(segment.ok()) << "the mark itself has no content";
        EXPECT_EQ(Indices(*segment), (std::vector<uint64_t>{1, 1, 2, 3}));
      }
    }
  }
}

TEST_F(LogReaderTest, GroupWrittenOutOfOrderIsATornTail) {
  ASSERT_TRUE(Write({Data(0, 1, "acknowledged")}).ok());
  ASSERT_TRUE(Write({Data(0, 2, "two"), Data(0, 3, "three"), Data(0, 4, "four")}).ok());
  const std::string contents = env_.Contents(kSegment1);
  const std::vector<LogRecord> records = ReadLast()->records;
  // The disk has the group's last record, but not the one before.
  std::string holed = contents;
  ASSERT_EQ(records[4].index, 3u);
  holed.replace(records[4].offset, kRecordHeaderBytes + 5, kRecordHeaderBytes + 5, '\0');
  env_.SetContents(kSegment1, holed);
  const LogSegment segment = ReadLast().value();
  EXPECT_EQ(Indices(segment), (std::vector<uint64_t>{1, 2}));
}

TEST_F(LogReaderTest, HoleBeforeALaterGroupIsDamage) {
  ASSERT_TRUE(Write({Data(0, 0, "zero")}).ok());
  ASSERT_TRUE(Write({Data(0, 1, "one"), Data(0, 2, "two")}).ok());
  const LogRecord one = ReadLast()->records[3];
  ASSERT_EQ(one.index, 1u);
  ASSERT_TRUE(Write({Data(0, 3, "three")}).ok());
  std::string contents = env_.Contents(kSegment1);
  contents.replace(one.offset, kRecordHeaderBytes + 3, kRecordHeaderBytes + 3, '\0');
  env_.SetContents(kSegment1, contents);
  ExpectDamaged(ReadLast().status(), kSegment1, one.offset);
  // Even if only a header of the later group is left.
  contents.resize(contents.size() - 5);
  env_.SetContents(kSegment1, contents);
  ExpectDamaged(ReadLast().status(), kSegment1, one.offset);
}

TEST_F(LogReaderTest, CopyOfALogInAPayloadProvesNothing) {
  ASSERT_TRUE(Write({Data(0, 1, "one")}).ok());
  ASSERT_TRUE(Write({Data(0, 2, "two")}).ok());
  writer_->MarkSettled();
  const std::string copy = env_.Contents(kSegment1);
  const uint64_t before = copy.size();
  ASSERT_TRUE(Write({Data(0, 3, copy + copy)}).ok());
  std::string contents = env_.Contents(kSegment1);
  contents[before] ^= 1;
  env_.SetContents(kSegment1, contents);
  const LogSegment segment = ReadLast().value();
  EXPECT_EQ(Indices(segment), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(segment.torn_bytes, contents.size() - before);
}

TEST_F(LogReaderTest, ClosedSegmentMustBeWhole) {
  segment_bytes_ = 1;
  Begin({});
  ASSERT_TRUE(Write({Data(0, 1, "one"), Data(5, 1, "one of five")}).ok());
  const uint64_t bytes = writer_->settled().offset;
  ASSERT_TRUE(Write({Data(0, 2, "two")}).ok());
  const SegmentHeader header = ReadSegmentHeader(env_, "/log", kJobId, 2).value();
  EXPECT_EQ(header.previous_segment, 1u);
  EXPECT_EQ(header.previous_bytes, bytes);
  const LogSegment second = ReadLast(2).value();
  EXPECT_EQ(DecodeReached(second.records[0].payload).value(), (ReachedIndices{{0, 1}, {5, 1}}));
  const std::string contents = env_.Contents(kSegment1);
  EXPECT_EQ(Indices(ReadClosedSegment(env_, "/log", kJobId, 1, bytes).value()),
            (std::vector<uint64_t>{1, 1}));
  // Later bytes do not count.
  env_.SetContents(kSegment1, contents + "rubbish");
  EXPECT_TRUE(ReadClosedSegment(env_, "/log", kJobId, 1, bytes).ok());
  for (size_t i = 0; i < bytes; ++i) {
    std::string flipped = contents;
    flipped[i] ^= 0x40;
    env_.SetContents(kSegment1, flipped);
    EXPECT_EQ(ReadClosedSegment(env_, "/log", kJobId, 1, bytes).status().code(),
              absl::StatusCode::kDataLoss)
        << i;
    env_.SetContents(kSegment1, contents.substr(0, i));
    EXPECT_EQ(ReadClosedSegment(env_, "/log", kJobId, 1, bytes).status().code(),
              absl::StatusCode::kDataLoss)
        << i;
  }
}

// A piece holds a record's header but not its payload.
TEST_F(LogReaderTest, VerifyingPieceByPieceFindsWhatReadingFinds) {
  ASSERT_TRUE(Write({Data(0, 1, "one"), Data(5, 1, std::string(200, 'p')), Data(0, 2, "")}).ok());
  ASSERT_TRUE(Write({Data(0, 3, "three")}).ok());
  const uint64_t bytes = writer_->settled().offset;
  const std::string contents = env_.Contents(kSegment1);
  const auto expect_same = [&](const std::string& file, const std::string& what) {
    env_.SetContents(kSegment1, file);
    const absl::Status read = ReadClosedSegment(env_, "/log", kJobId, 1, bytes).status();
    for (const size_t piece : {kRecordHeaderBytes, size_t{100}, kVerifyPieceBytes}) {
      EXPECT_EQ(VerifyClosedSegment(env_, "/log", kJobId, 1, bytes, piece), read)
          << what << ", pieces of " << piece << " bytes";
    }
  };
  expect_same(contents, "whole");
  EXPECT_TRUE(VerifyClosedSegment(env_, "/log", kJobId, 1, bytes).ok());
  expect_same(contents + "rubbish", "later bytes");
  for (size_t i = 0; i < bytes; ++i) {
    std::string flipped = contents;
    flipped[i] ^= 0x40;
    expect_same(flipped, absl::StrCat("flip at ", i));
    expect_same(contents.substr(0, i), absl::StrCat("end at ", i));
  }
  EXPECT_TRUE(absl::IsNotFound(VerifyClosedSegment(env_, "/log", kJobId, 2, bytes)));
}

TEST_F(LogReaderTest, SegmentOfAnotherJobOrPlaceIsRefused) {
  ASSERT_TRUE(Write({Data(0, 1, "one")}).ok());
  const absl::Status status = ReadLastSegment(env_, "/log", 78, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "belongs to job 77, not to job 78")) << status;
  env_.SetContents(kSegment2, env_.Contents(kSegment1));
  ExpectDamaged(ReadLast(2).status(), kSegment2, 0);
}

TEST_F(LogReaderTest, FullDiskLeavesNoPartOfTheGroup) {
  ASSERT_TRUE(Write({Data(0, 1, "one")}).ok());
  const std::string before = env_.Contents(kSegment1);
  env_.SetCapacity(env_.UsedBytes() + 50);
  EXPECT_EQ(Write({Data(0, 2, std::string(100, 'x'))}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(env_.Contents(kSegment1), before);
  env_.SetUnlimited();
  ASSERT_TRUE(Write({Data(0, 2, std::string(100, 'x'))}).ok());
  EXPECT_EQ(Indices(*ReadLast()), (std::vector<uint64_t>{1, 2}));
}

TEST_F(LogReaderTest, FailedSyncMovesTheGroupToANewSegment) {
  ASSERT_TRUE(Write({Data(0, 1, "one")}).ok());
  const uint64_t settled = writer_->settled().offset;
  env_.FailSyncs(1);
  EXPECT_EQ(Write({Data(0, 2, "two")}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(writer_->settled().offset, settled);
  ASSERT_TRUE(Write({Data(0, 2, "two")}).ok());
  const LogSegment second = ReadLast(2).value();
  EXPECT_EQ(Indices(second), (std::vector<uint64_t>{2}));
  EXPECT_EQ(second.header.previous_bytes, settled);
  EXPECT_EQ(Indices(*ReadClosedSegment(env_, "/log", kJobId, 1, settled)),
            (std::vector<uint64_t>{1}));
}

TEST_F(LogReaderTest, FailedSegmentIsNotPartOfTheLog) {
  segment_bytes_ = 1;
  Begin({});
  ASSERT_TRUE(Write({Data(0, 1, "one")}).ok());
  env_.FailFolderSyncs(1);
  EXPECT_FALSE(Write({Data(0, 2, "two")}).ok());
  ASSERT_TRUE(Write({Data(0, 2, "two")}).ok());
  EXPECT_EQ(writer_->settled().segment, 3u);
  EXPECT_EQ(ReadLast(3)->header.previous_segment, 1u);
}

// The bytes that the document of version 1 showed.
constexpr char kVersion1[] =
    "5041574c57414c0a010000004d000000"
    "00000000020000000000000001000000"
    "00000000d2040000000000005224d322"
    "505752b12e98e033180000003ec58f32"
    "30000000030000000000000000000000"
    "00000000030000000600000000000000"
    "040000000900000000000000505752b1"
    "0d5886540400000006363dd030000000"
    "01000000030000000700000000000000"
    "70757368505752b17585ecf800000000"
    "00000000940000000400000000000000"
    "0000000000000000";

TEST_F(LogReaderTest, SegmentOfVersion1IsRead) {
  const std::string bytes = absl::HexStringToBytes(kVersion1);
  env_.SetContents(kSegment2, bytes);
  const LogSegment segment = ReadLast(2).value();
  EXPECT_EQ(segment.header.previous_bytes, 1234u);
  ASSERT_EQ(segment.records.size(), 3u);
  EXPECT_EQ(DecodeReached(segment.records[0].payload), (ReachedIndices{{3, 6}, {4, 9}}));
  EXPECT_EQ(segment.records[1].index, 7u);
  EXPECT_EQ(segment.records[1].term, 0u);
  EXPECT_EQ(segment.records[1].payload, "push");
  EXPECT_EQ(segment.settled, 148u);
  EXPECT_EQ(segment.end, bytes.size());
  // Damage before the end that the last record declares settled.
  std::string damaged = bytes;
  damaged[0x92] ^= 1;
  env_.SetContents(kSegment2, damaged);
  ExpectDamaged(ReadLast(2).status(), kSegment2, segment.records[1].offset);
}

TEST_F(LogReaderTest, DocumentShowsTheBytes) {
  Begin({1, 1234, 2, {{3, 6}, {4, 9}}});
  ASSERT_TRUE(Write({Data(3, 7, "push"),
                     {RecordType::kTruncate, 4, 8, 0, ByteView(), nullptr, std::nullopt, 0}})
                  .ok());
  EXPECT_EQ(ReadWorkedBytes("server/storage/wal/log_format.md"), env_.Contents(kSegment2))
      << FormatWorkedBytes(env_.Contents(kSegment2));
}

}  // namespace
}  // namespace pawl
