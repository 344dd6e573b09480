#include "server/storage/recovery.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/storage_harness.h"
#include "server/storage/wal/log_reader.h"

namespace pawl {
namespace {

constexpr char kLog[] = "/data/log/";
constexpr char kSnapshots[] = "/data/snapshots/";

class RecoveryTest : public testing::Test {
 protected:
  void SetUp() override { options_.segment_bytes = 500; }

  absl::Status Start() {
    server_ = nullptr;
    server_ = std::make_unique<StorageHarness>(env_, options_);
    return server_->Open();
  }
  void Stop() { server_ = nullptr; }
  // Appends a record and waits until it is durable.
  void Append(uint32_t partition, size_t bytes = 100) {
    ASSERT_TRUE(server_->Append(partition, std::string(bytes, 'x')));
    ASSERT_TRUE(server_->WaitDurable(partition));
  }
  void Flip(const std::string& path, size_t offset) {
    std::string contents = env_.Contents(path);
    contents.at(offset) ^= 0x10;
    env_.SetContents(path, contents);
  }
  std::vector<std::string> Files(const std::string& folder) {
    return env_.List(FolderOf(folder + "x")).value();
  }
  std::string Newest(const std::string& folder) {
    return absl::StrCat(folder, Files(folder).back());
  }
  void ExpectDataLoss(absl::string_view file, absl::string_view offset = "at offset ") {
    const absl::Status status = Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), file)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), offset)) << status;
  }

  FaultEnv env_{1};
  WriteAheadLogOptions options_ = StorageHarness::QuickOptions();
  std::unique_ptr<StorageHarness> server_;
};

TEST_F(RecoveryTest, NewDirectoryIsEmpty) {
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(server_->partitions().empty());
  EXPECT_TRUE(server_->recovered().notes.empty());
}

TEST_F(RecoveryTest, DirectoryIsLocked) {
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(StorageHarness(env_).Open().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RecoveryTest, NewestSnapshotAndLaterRecordsAreRecovered) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 7; ++i) Append(3);
  ASSERT_TRUE(server_->Snapshot(3).ok());
  for (int i = 0; i < 7; ++i) Append(3);
  ASSERT_TRUE(server_->Snapshot(3).ok());
  Append(3);
  const auto expected = server_->partitions();
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partitions(), expected);
  ASSERT_EQ(server_->recovered().partitions.size(), 1u);
  EXPECT_EQ(server_->recovered().partitions[0].snapshot_index, 14u);
  EXPECT_EQ(server_->recovered().partitions[0].last_index, 15u);
}

TEST_F(RecoveryTest, DamagedSnapshotIsSkippedForThePreviousOne) {
  ASSERT_TRUE(Start().ok());
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 7; ++i) Append(3);
    ASSERT_TRUE(server_->Snapshot(3).ok());
  }
  Append(3);
  const auto expected = server_->partitions();
  Stop();
  const std::string newest = Newest(kSnapshots);
  const std::string contents = env_.Contents(newest);
  for (size_t i = 0; i < contents.size(); i += 7) {
    env_.SetContents(newest, contents);
    Flip(newest, i);
    ASSERT_TRUE(Start().ok());
    EXPECT_EQ(server_->partitions(), expected) << "byte " << i;
    EXPECT_EQ(server_->recovered().partitions[0].snapshot_index, 21u);
    ASSERT_EQ(server_->recovered().notes.size(), 1u);
    EXPECT_TRUE(absl::StrContains(server_->recovered().notes[0],
                                  absl::StrCat(newest, " is damaged at offset ")))
        << server_->recovered().notes[0];
    Stop();
    EXPECT_EQ(Files(kSnapshots).size(), 1u) << "the damaged one is gone";
  }
}

TEST_F(RecoveryTest, DamagedSnapshotsWithAShortLogAreDataLoss) {
  ASSERT_TRUE(Start().ok());
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 7; ++i) Append(3);
    ASSERT_TRUE(server_->Snapshot(3).ok());
  }
  Stop();
  for (const std::string& file : Files(kSnapshots)) Flip(absl::StrCat(kSnapshots, file), 60);
  const auto before = Files(kSnapshots);
  ExpectDataLoss(absl::StrCat(kSnapshots, before[0], " is damaged at offset "));
  EXPECT_EQ(Files(kSnapshots), before) << "nothing was changed";
}

TEST_F(RecoveryTest, SnapshotOfAnotherPartitionOrJobIsIgnored) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 3; ++i) {
    Append(3);
    Append(4);
  }
  ASSERT_TRUE(server_->Snapshot(3).ok());
  ASSERT_TRUE(server_->Snapshot(4).ok());
  const auto expected = server_->partitions();
  Stop();
  const std::string three = absl::StrCat(kSnapshots, Files(kSnapshots)[0]);
  const std::string four = absl::StrCat(kSnapshots, Files(kSnapshots)[1]);
  env_.SetContents(three, env_.Contents(four));
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partitions(), expected) << "the log still reaches from 1";
  EXPECT_TRUE(absl::StrContains(server_->recovered().notes[0], "it holds partition 4, not 3"));
}

TEST_F(RecoveryTest, MissingSegmentsAndSnapshotsAreDataLoss) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 20; ++i) Append(i % 2, 240);
  Append(0);
  ASSERT_TRUE(server_->Snapshot(0).ok());
  Stop();
  const std::vector<std::string> segments = Files(kLog);
  ASSERT_GE(segments.size(), 4u);
  std::map<std::string, std::string> contents;
  for (const std::string& segment : segments)
    contents[segment] = env_.Contents(absl::StrCat(kLog, segment));
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    ASSERT_TRUE(env_.Delete(absl::StrCat(kLog, segments[i])).ok());
    // Partition 1 has no snapshot, so it needs every segment but the last.
    ExpectDataLoss(kLog);
    Stop();
    env_.SetContents(absl::StrCat(kLog, segments[i]), contents[segments[i]]);
  }
  ASSERT_TRUE(Start().ok());
}

TEST_F(RecoveryTest, MissingSegmentWithLastRecordsIsDataLoss) {
  ASSERT_TRUE(Start().ok());
  Append(7, 600);
  Append(8, 600);
  Append(8, 600);
  Stop();
  // Nothing later in the log belongs to partition 7.
  ASSERT_TRUE(env_.Delete(absl::StrCat(kLog, Files(kLog)[0])).ok());
  const absl::Status status = Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "partition 7 is found only up to record 0 but was once at 1"))
      << status;
}

// A disk that was not mounted, or a copy from earlier.
TEST_F(RecoveryTest, LogThatIsOlderThanASnapshotIsDataLoss) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 7; ++i) Append(3);
  const std::vector<std::string> older = Files(kLog);
  for (int i = 0; i < 7; ++i) Append(3);
  ASSERT_TRUE(server_->Snapshot(3).ok());
  Append(3);
  Stop();
  for (const std::string& segment : Files(kLog)) {
    if (std::ranges::count(older, segment) > 0) continue;
    ASSERT_TRUE(env_.Delete(absl::StrCat(kLog, segment)).ok());
  }
  ExpectDataLoss(kLog, "is missing");
  Stop();
  for (const std::string& segment : Files(kLog))
    ASSERT_TRUE(env_.Delete(absl::StrCat(kLog, segment)).ok());
  ExpectDataLoss(kLog, "is missing");
}

TEST_F(RecoveryTest, DiskThatTakesNothingDuringRecoveryIsNotDamaged) {
  ASSERT_TRUE(Start().ok());
  Append(3);
  Stop();
  env_.FailSyncs(1);
  EXPECT_EQ(Start().code(), absl::StatusCode::kUnavailable);
  Stop();
  EXPECT_TRUE(Start().ok());
}

TEST_F(RecoveryTest, FlippedByteOfTheLogIsRefusedOrHarmless) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 9; ++i) Append(i % 3, 50);
  const auto expected = server_->partitions();
  Stop();
  std::map<std::string, std::string> contents;
  for (const std::string& file : Files(kLog))
    contents[file] = env_.Contents(absl::StrCat(kLog, file));
  ASSERT_GE(contents.size(), 2u);
  int refused = 0, harmless = 0;
  for (const auto& [file, bytes] : contents) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string flipped = bytes;
      flipped[i] ^= 0x04;
      env_.SetContents(absl::StrCat(kLog, file), flipped);
      const absl::Status status = Start();
      if (status.ok()) {
        EXPECT_EQ(server_->partitions(), expected) << file << " byte " << i;
        ++harmless;
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        EXPECT_TRUE(absl::StrContains(status.message(), file)) << status;
        ++refused;
      }
      Stop();
      for (const auto& [other, original] : contents)
        env_.SetContents(absl::StrCat(kLog, other), original);
    }
  }
  EXPECT_GT(refused, 800);
  EXPECT_LT(harmless, 100) << "marks, and bytes after the end of a closed segment";
}

TEST_F(RecoveryTest, TornTailIsTruncatedAndReported) {
  options_.segment_bytes = 1 << 20;
  ASSERT_TRUE(Start().ok());
  Append(3);
  Append(3);
  const auto expected = server_->partitions();
  const LogPosition end = server_->log().DurablePosition();
  Stop();
  const std::string path = Newest(kLog);
  env_.SetContents(path, env_.Contents(path).substr(0, end.offset) + std::string(1000, '\0'));
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partitions(), expected);
  ASSERT_EQ(server_->recovered().notes.size(), 1u);
  EXPECT_TRUE(
      absl::StrContains(server_->recovered().notes[0],
                        absl::StrCat(path, ": truncated 1000 bytes at offset ", end.offset)))
      << server_->recovered().notes[0];
  Stop();
  EXPECT_EQ(env_.FileSize(path).value(), end.offset);
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(server_->recovered().notes.empty());
}

// The bytes of a segment in version 1. `offsets`: maps the previous segment's record offsets to the
// new ones, and then receives those of this segment.
std::string AsVersion1(const LogSegment& segment, std::map<uint64_t, uint64_t>& offsets) {
  constexpr size_t kHeaderBytes = 36;
  std::string bytes = EncodeSegmentHeader(segment.header);
  PutNumber(bytes.data() + 8, uint32_t{1});
  PutNumber(bytes.data() + 36,
            segment.header.previous_segment == 0 ? 0 : offsets.at(segment.header.previous_bytes));
  PutNumber(bytes.data() + 44, Crc32c(0, bytes.data(), 44));
  offsets.clear();
  for (const LogRecord& record : segment.records) {
    const uint64_t offset = bytes.size();
    offsets[record.offset] = offset;
    const RecordHeader header =
        *DecodeRecordHeader(2, segment.header.job_id, segment.header.segment, record.offset,
                            &(*segment.bytes)[record.offset]);
    bytes.resize(offset + kHeaderBytes);
    std::memcpy(&bytes[offset], "PWR\xb1", 4);
    char* out = &bytes[offset + 8];
    out = PutNumber(out, header.payload_bytes);
    out = PutNumber(out, header.payload_crc);
    out = PutNumber(out, static_cast<uint32_t>(offsets.at(header.settled)));
    const bool is_drop = header.type == RecordType::kTruncate && header.index == 0;
    out = PutNumber(out, static_cast<uint32_t>(is_drop ? RecordType::kDrop : header.type));
    PutNumber(PutNumber(out, header.partition), header.index);
    char place[24];
    PutNumber(PutNumber(PutNumber(place, segment.header.job_id), segment.header.segment), offset);
    PutNumber(&bytes[offset + 4],
              Crc32c(Crc32c(0, place, sizeof(place)), &bytes[offset + 8], kHeaderBytes - 8));
    bytes.append(record.payload.data(), record.payload.size());
  }
  offsets[segment.end] = bytes.size();
  return bytes;
}

TEST_F(RecoveryTest, LogOfVersion1IsRecoveredAndContinued) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 30; ++i) Append(i % 3);
  ASSERT_TRUE(server_->Drop(2));
  ASSERT_TRUE(server_->Snapshot(1).ok());
  Append(1);
  Append(0, 300);
  auto expected = server_->partitions();
  Stop();
  const std::vector<std::string> segments = Files(kLog);
  ASSERT_GT(segments.size(), 3u);
  std::map<uint64_t, uint64_t> offsets;
  std::map<std::string, std::string> converted;
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint64_t number = *ParseSegmentFileName(segments[i]);
    absl::StatusOr<LogSegment> segment = ReadLastSegment(env_, "/data/log", kHarnessJobId, number);
    if (i + 1 < segments.size()) {
      const uint64_t bytes =
          ReadSegmentHeader(env_, "/data/log", kHarnessJobId, number + 1)->previous_bytes;
      segment = ReadClosedSegment(env_, "/data/log", kHarnessJobId, number, bytes);
    }
    ASSERT_TRUE(segment.ok()) << segment.status();
    converted[segments[i]] = AsVersion1(*segment, offsets);
  }
  for (const auto& [name, bytes] : converted) env_.SetContents(absl::StrCat(kLog, name), bytes);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partitions(), expected);
  Append(1);
  Append(2);
  ASSERT_TRUE(server_->Replace(0, {3, 0x1234}).ok());
  Append(0);
  expected = server_->partitions();
  Stop();
  EXPECT_EQ(ReadSegmentHeader(env_, "/data/log", kHarnessJobId, *ParseSegmentFileName(segments[0]))
                ->version,
            1u);
  EXPECT_EQ(
      ReadSegmentHeader(env_, "/data/log", kHarnessJobId, *ParseSegmentFileName(Files(kLog).back()))
          ->version,
      2u);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(RecoveryTest, LogOfAnotherJobIsRefusedWithAdvice) {
  ASSERT_TRUE(Start().ok());
  Append(3);
  Stop();
  SnapshotStore snapshots(env_, "/data", kHarnessJobId + 1);
  ASSERT_TRUE(snapshots.Open().ok());
  class NoSink : public RecoverySink {
    absl::Status LoadSnapshot(uint32_t, uint64_t, BlockFileReader&) override {
      return absl::OkStatus();
    }
    absl::Status Replay(uint32_t, uint64_t, const ByteView&,
                        const std::shared_ptr<const void>&) override {
      return absl::OkStatus();
    }
  } sink;
  const absl::Status status = Recover("/data", snapshots, sink).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "name another data directory")) << status;
}

TEST_F(RecoveryTest, ErrorOfTheSinkNamesTheRecord) {
  ASSERT_TRUE(Start().ok());
  Append(3);
  Stop();
  SnapshotStore snapshots(env_, "/data", kHarnessJobId);
  ASSERT_TRUE(snapshots.Open().ok());
  class BadSink : public RecoverySink {
    absl::Status LoadSnapshot(uint32_t, uint64_t, BlockFileReader&) override {
      return absl::OkStatus();
    }
    absl::Status Replay(uint32_t, uint64_t, const ByteView&,
                        const std::shared_ptr<const void>&) override {
      return absl::InvalidArgumentError("not a push");
    }
  } sink;
  const absl::Status status = Recover("/data", snapshots, sink).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "record 1 of partition 3: not a push")) << status;
}

TEST_F(RecoveryTest, InterruptedRecoveryCanBeRepeated) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 10; ++i) Append(3);
  ASSERT_TRUE(server_->Snapshot(3).ok());
  for (int i = 0; i < 10; ++i) Append(3);
  Stop();
  class EndedSink : public RecoverySink {
   public:
    absl::Status LoadSnapshot(uint32_t, uint64_t, BlockFileReader& snapshot) override {
      while (true) {
        PAWL_ASSIGN_OR_RETURN(const absl::string_view block, snapshot.NextBlock());
        if (block.empty()) return absl::OkStatus();
      }
    }
    absl::Status Replay(uint32_t, uint64_t, const ByteView&,
                        const std::shared_ptr<const void>&) override {
      return absl::OkStatus();
    }
    bool ShouldContinue() override { return files-- > 0; }
    int files = 0;
  };
  int interrupted = 0;
  for (bool done = false; !done; ++interrupted) {
    ASSERT_LT(interrupted, 100);
    SnapshotStore snapshots(env_, "/data", kHarnessJobId);
    ASSERT_TRUE(snapshots.Open().ok());
    EndedSink sink;
    sink.files = interrupted;
    const absl::StatusOr<RecoveredLog> recovered = Recover("/data", snapshots, sink);
    done = recovered.ok();
    EXPECT_TRUE(done || absl::IsCancelled(recovered.status())) << recovered.status();
  }
  // Each segment is read twice.
  EXPECT_GT(interrupted, 2 * static_cast<int>(Files(kLog).size()));
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(server_->partition(3).index, 20u);
}

// A partition with a log of two incarnations, all of it durable, that is reset to one of `news`.
struct ResetServer {
  ResetServer(FaultEnv& env, const WriteAheadLogOptions& options, bool replaces)
      : env(env), options(options) {
    Start();
    std::map<uint64_t, ToyPartition> states;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(server->Append(3, absl::StrCat("old ", i)));
      EXPECT_TRUE(server->WaitDurable(3));
      states[server->partition(3).index] = server->partition(3);
      if (i == 8 || i == 15) {
        EXPECT_TRUE(server->Snapshot(3).ok());
      }
    }
    // Recovery syncs the log in either mode.
    Start();
    old = server->partition(3);
    news = {replaces ? ToyPartition{10, 0x1234} : states.at(12)};
  }
  void Start() {
    server = nullptr;
    server = std::make_unique<StorageHarness>(env, options);
    const absl::Status status = server->Open();
    ASSERT_TRUE(status.ok()) << status;
  }
  bool Reset(bool replaces) {
    if (replaces) return server->Replace(3, news[0]).ok();
    server->Truncate(3, news[0]);
    return true;
  }
  // Whether the partition is found after the reset. Otherwise it must be as it was before.
  bool IsAfter() {
    const ToyPartition& found = server->partition(3);
    const bool is_after = std::find(news.begin(), news.end(), found) != news.end();
    EXPECT_TRUE(is_after || found == old) << found.index;
    return is_after;
  }

  FaultEnv& env;
  const WriteAheadLogOptions options;
  std::unique_ptr<StorageHarness> server;
  ToyPartition old;
  std::vector<ToyPartition> news;
};

// The power fails at every write of a reset.
TEST_F(RecoveryTest, PowerLossDuringAResetLeavesOldOrNewLog) {
  for (const auto& [replaces, sync] :
       {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
    options_.sync = sync;
    // The reset does not end a segment that is full anyway.
    options_.segment_bytes = sync ? 500 : 100'000;
    int before = 0, after = 0;
    for (int operations = 0; operations < 40; ++operations) {
      SCOPED_TRACE(
          absl::StrCat(replaces ? "Replace " : "Truncate ", sync ? "FSYNC " : "LOG ", operations));
      FaultEnv env(static_cast<uint64_t>(operations));
      ResetServer reset(env, options_, replaces);
      // The segment of this incarnation.
      ASSERT_TRUE(reset.server->Append(4, "other"));
      ASSERT_TRUE(reset.server->WaitDurable(4));
      env.CutPowerAfter(operations);
      const bool queued = reset.Reset(replaces);
      for (int i = 0; i < 3 && queued; ++i) {
        ASSERT_TRUE(reset.server->Append(3, absl::StrCat("new ", i)));
        reset.news.push_back(reset.server->partition(3));
        if (!reset.server->WaitDurable(3, true)) break;
      }
      const uint64_t durable = queued ? reset.server->durable(3) : 0;
      env.CutPower();
      reset.server = nullptr;
      env.RestorePower();
      reset.Start();
      ASSERT_FALSE(HasFailure());
      const bool is_after = reset.IsAfter();
      if (durable > 0) {
        EXPECT_TRUE(is_after);
        EXPECT_TRUE(!sync || reset.server->partition(3).index >= durable);
      }
      ++(is_after ? after : before);
    }
    EXPECT_GT(before, 0);
    EXPECT_GT(after, 0);
  }
}

// The process is killed when the reset can be read but is not on the disk, and the power fails
// during the next recovery.
TEST_F(RecoveryTest, PowerLossDuringRecoveryOfAResetLeavesOldOrNewLog) {
  options_.retry_interval = std::chrono::hours(1);
  for (const bool replaces : {true, false}) {
    int before = 0, after = 0;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const uint64_t operations = seed % 20;
      SCOPED_TRACE(absl::StrCat(replaces ? "Replace " : "Truncate ", seed));
      FaultEnv env(seed);
      ResetServer reset(env, options_, replaces);
      std::unique_ptr<SnapshotWriter> stored;
      if (replaces) stored = *reset.server->Store(3, reset.news[0]);
      env.FailFolderSyncs(1 << 20);
      env.FailDeletions(1 << 20);
      if (replaces) {
        reset.server->QueueReplace(3, reset.news[0], *stored);
      } else {
        reset.server->Truncate(3, reset.news[0]);
      }
      ASSERT_TRUE(Eventually([&] { return reset.server->log().figures().failures == 2; }));
      stored = nullptr;
      reset.server = nullptr;
      env.KillProcesses();
      env.FailFolderSyncs(0);
      env.FailDeletions(0);
      env.CutPowerAfter(static_cast<int64_t>(operations));
      reset.server = std::make_unique<StorageHarness>(env, options_);
      reset.server->Open().IgnoreError();
      env.CutPower();
      reset.server = nullptr;
      env.RestorePower();
      reset.Start();
      ASSERT_FALSE(HasFailure());
      ++(reset.IsAfter() ? after : before);
    }
    EXPECT_GT(before, 0);
    EXPECT_GT(after, 0);
  }
}

// The stored snapshot could not be renamed, and another one of the same index was written since.
TEST_F(RecoveryTest, LaterSnapshotReplacesDamagedStoredOne) {
  ASSERT_TRUE(Start().ok());
  for (int i = 0; i < 20; ++i) Append(3);
  auto stored = server_->Store(3, {10, 0x1234});
  ASSERT_TRUE(stored.ok()) << stored.status();
  const std::string path = Newest(kSnapshots);
  std::string contents = env_.Contents(path);
  server_->QueueReplace(3, {10, 0x1234}, **stored);
  ASSERT_TRUE(server_->WaitDurable(3));
  stored->reset();
  ASSERT_TRUE(server_->Snapshot(3).ok());
  const auto expected = server_->partitions();
  Stop();
  contents.back() ^= 1;
  env_.SetContents(path, contents);
  const absl::Status status = Start();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(server_->partitions(), expected);
}

// The acknowledged end of the log, which nothing settled follows, is carried into the next segment
// together with the segment.
TEST_F(RecoveryTest, KillDuringTheNextStartLosesNothing) {
  options_.idle_interval = std::chrono::hours(1);
  options_.segment_bytes = 1 << 20;
  for (int operations = 0; operations < 40; ++operations) {
    SCOPED_TRACE(operations);
    FaultEnv env(static_cast<uint64_t>(operations));
    auto server = std::make_unique<StorageHarness>(env, options_);
    ASSERT_TRUE(server->Open().ok());
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(server->Append(3, "acknowledged"));
      ASSERT_TRUE(server->WaitDurable(3));
    }
    const auto expected = server->partitions();
    env.CutPower();
    server = nullptr;
    env.RestorePower();
    env.CutPowerAfter(operations);
    server = std::make_unique<StorageHarness>(env, options_);
    if (server->Open().ok()) server->WaitDurable(3, true);
    env.CutPower();
    server = nullptr;
    env.RestorePower();
    server = std::make_unique<StorageHarness>(env, options_);
    const absl::Status status = server->Open();
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(server->partitions(), expected);
  }
}

}  // namespace
}  // namespace pawl
