#include "server/storage/wal/write_ahead_log.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/failpoint_control.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/storage_harness.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

class WriteAheadLogTest : public testing::Test {
 protected:
  // Starts a new incarnation of the process.
  void Restart(WriteAheadLogOptions options = StorageHarness::QuickOptions()) {
    server_ = nullptr;
    server_ = std::make_unique<StorageHarness>(env_, options);
    const absl::Status status = server_->Open();
    ASSERT_TRUE(status.ok()) << status;
  }

  FaultEnv env_{1};
  std::unique_ptr<StorageHarness> server_;
};

TEST_F(WriteAheadLogTest, AppendedRecordsAreReplayedInOrder) {
  Restart();
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(server_->Append(i % 7, std::string(i * 10, static_cast<char>(i))));
  const auto expected = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
  for (uint32_t p = 0; p < 7; ++p) {
    ASSERT_TRUE(server_->Append(p, "more"));
    EXPECT_TRUE(server_->WaitDurable(p));
  }
  const auto more = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), more);
}

TEST_F(WriteAheadLogTest, LogModeSurvivesTheProcessWithoutSyncs) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.sync = false;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, "first"));
  ASSERT_TRUE(server_->WaitDurable(1));
  const uint64_t syncs = env_.syncs();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(server_->Append(1, "x"));
    ASSERT_TRUE(server_->WaitDurable(1));
  }
  EXPECT_EQ(env_.syncs(), syncs);
  const auto expected = server_->partitions();
  env_.KillProcesses();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, AppendsOfManyThreadsAreWrittenInGroups) {
  Restart();
  constexpr int kThreads = 4, kRecords = 500;
  // Nothing is written until all threads have appended: the disk is full.
  ASSERT_TRUE(server_->Append(100, "x"));
  ASSERT_TRUE(server_->WaitDurable(100));
  env_.SetCapacity(env_.UsedBytes());
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kRecords; ++i) {
        auto payload = std::make_shared<const std::string>(20, static_cast<char>('a' + t));
        server_->log().Append(t, i, 1, ByteView(payload->data(), payload->size()), payload);
        server_->log().WriteQueued();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const uint64_t groups = server_->log().figures().groups;
  const uint64_t syncs = env_.syncs();
  env_.SetUnlimited();
  EXPECT_TRUE(Eventually([&] {
    for (uint32_t t = 0; t < kThreads; ++t) {
      if (server_->durable(t) != kRecords) return false;
    }
    return true;
  }));
  EXPECT_EQ(server_->log().figures().records, 1u + kThreads * kRecords);
  EXPECT_LE(server_->log().figures().groups - groups, 3u);
  EXPECT_LE(env_.syncs() - syncs, 3u) << "one for each group";
  Restart();
  for (uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(server_->partitions().at(t).index, kRecords);
}

// The log's thread must not wake for the first records of a message and again for the others.
TEST_F(WriteAheadLogTest, RecordsQueuedTogetherAreWrittenTogether) {
  Restart();
  ASSERT_TRUE(server_->Append(100, "x"));
  ASSERT_TRUE(server_->WaitDurable(100));
  const uint64_t groups = server_->log().figures().groups;
  constexpr uint64_t kRecords = 10000;
  const auto payload = std::make_shared<const std::string>("payload");
  for (uint64_t i = 1; i <= kRecords; ++i)
    server_->log().Append(1, i, 1, ByteView(payload->data(), payload->size()), payload);
  server_->log().WriteQueued();
  EXPECT_TRUE(Eventually([&] { return server_->durable(1) == kRecords; }));
  EXPECT_EQ(server_->log().figures().groups, groups + 1);
}

TEST_F(WriteAheadLogTest, PayloadsAreReleasedOnceDurable) {
  Restart();
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.SetCapacity(env_.UsedBytes());
  auto payload = std::make_shared<const std::string>("payload");
  server_->log().Append(2, 1, 1, ByteView(payload->data(), payload->size()), payload);
  server_->log().WriteQueued();
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().failures > 2; }));
  EXPECT_EQ(payload.use_count(), 2);
  env_.SetUnlimited();
  EXPECT_TRUE(Eventually([&] { return server_->durable(2) == 1; }));
  EXPECT_EQ(payload.use_count(), 1);
}

TEST_F(WriteAheadLogTest, FullQueueStillAcceptsAppliedRecords) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.max_queued_bytes = 10'000;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.SetCapacity(env_.UsedBytes());
  int taken = 0;
  while (server_->Append(1, std::string(1000, 'x'))) ++taken;
  EXPECT_GE(taken, 5);
  EXPECT_LT(taken, 10);
  EXPECT_FALSE(server_->log().HasRoom(1000));
  EXPECT_TRUE(server_->log().HasRoom(1));
  EXPECT_LE(server_->log().figures().queued_bytes, options.max_queued_bytes);
  // Another thread has asked before.
  const auto applied = std::make_shared<const std::string>(5000, 'y');
  server_->log().Append(2, 1, 1, ByteView(applied->data(), applied->size()), applied);
  server_->log().WriteQueued();
  EXPECT_GT(server_->log().figures().queued_bytes, options.max_queued_bytes);
  env_.SetUnlimited();
  EXPECT_TRUE(Eventually([&] { return server_->durable(2) == 1; }));
  EXPECT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->log().figures().queued_bytes, 0u);
  EXPECT_TRUE(server_->Append(1, std::string(1000, 'x')));
  server_->partition(2).Apply(*applied);
  const auto expected = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, FullDiskAcknowledgesNothingUntilSpaceIsBack) {
  Restart();
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.SetCapacity(env_.UsedBytes() + 60);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(server_->Append(1, std::string(100, static_cast<char>(i))));
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().failures > 5; }));
  EXPECT_EQ(server_->log().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server_->durable(1), 1u);
  env_.SetUnlimited();
  EXPECT_TRUE(server_->WaitDurable(1));
  EXPECT_TRUE(server_->log().status().ok());
  const auto expected = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
  EXPECT_TRUE(server_->recovered().notes.empty());
}

TEST_F(WriteAheadLogTest, FullDiskAndItsEndAreLoggedOnce) {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  Restart();
  env_.SetCapacity(env_.UsedBytes());
  ASSERT_TRUE(server_->Append(1, std::string(100, 'x')));
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().failures > 5; }));
  env_.SetUnlimited();
  EXPECT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  spdlog::set_default_logger(before);
  std::vector<std::string> logged;
  for (const std::string& line : lines->last_formatted()) {
    if (absl::StrContains(line, "the log in ")) logged.push_back(line);
  }
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_TRUE(absl::StrContains(logged[0], "cannot be written")) << logged[0];
  EXPECT_TRUE(absl::StrContains(logged[1], "can be written again")) << logged[1];
}

TEST_F(WriteAheadLogTest, KillOnFullDiskLosesOnlyUnacknowledgedRecords) {
  Restart();
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  const auto acknowledged = server_->partitions();
  env_.SetCapacity(env_.UsedBytes() + 60);
  ASSERT_TRUE(server_->Append(1, std::string(100, 'y')));
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().failures > 1; }));
  env_.KillProcesses();
  Restart();
  EXPECT_EQ(server_->partitions(), acknowledged);
}

TEST_F(WriteAheadLogTest, AcknowledgedRecordsSurviveFailedSyncAndPowerLoss) {
  Restart();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(server_->Append(1, "before"));
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.FailSyncs(3);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(server_->Append(1, "after"));
  EXPECT_TRUE(server_->WaitDurable(1));
  EXPECT_GE(server_->log().figures().failures, 3u);
  EXPECT_GE(server_->log().figures().segments, 2u);
  const auto expected = server_->partitions();
  env_.CutPower();
  env_.RestorePower();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, KillAfterAFailedSyncTrustsOnlyAcknowledgedRecords) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.retry_interval = std::chrono::hours(1);
  Restart(options);
  ASSERT_TRUE(server_->Append(1, "before"));
  ASSERT_TRUE(server_->WaitDurable(1));
  // The group can be read but is not on the disk; then the process dies.
  env_.FailSyncs(2);
  ASSERT_TRUE(server_->Append(1, "after"));
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().failures == 2; }));
  env_.KillProcesses();
  Restart();
  ASSERT_EQ(server_->partitions().at(1).index, 2u) << "readable records are kept";
  EXPECT_TRUE(server_->WaitDurable(1)) << "and written again";
  ASSERT_TRUE(server_->Append(1, "later"));
  ASSERT_TRUE(server_->WaitDurable(1));
  const auto expected = server_->partitions();
  env_.CutPower();
  env_.RestorePower();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, WriteErrorIsRetriedInANewSegment) {
  Restart();
  ASSERT_TRUE(server_->Append(1, "before"));
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.FailAppends(2);
  ASSERT_TRUE(server_->Append(1, "after"));
  EXPECT_TRUE(server_->WaitDurable(1));
  const auto expected = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, UnneededSegmentsAreDeletedOldestFirst) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 500;
  Restart(options);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(server_->Append(i % 2, std::string(400, 'x')));
    ASSERT_TRUE(server_->WaitDurable(i % 2));
  }
  const uint64_t segments = server_->log().figures().segments;
  EXPECT_GE(segments, 20u);
  EXPECT_EQ(server_->log().PartitionsOfOldestSegment(), (std::vector<uint32_t>{0}));
  ASSERT_TRUE(server_->Snapshot(0).ok());
  ASSERT_TRUE(server_->Append(0, "x"));
  ASSERT_TRUE(server_->WaitDurable(0));
  ASSERT_TRUE(server_->Snapshot(0).ok());
  EXPECT_EQ(server_->log().PartitionsOfOldestSegment(), (std::vector<uint32_t>{1}));
  EXPECT_EQ(server_->log().figures().segments, segments)
      << "partition 1 needs its records in the second";
  ASSERT_TRUE(server_->Snapshot(1).ok());
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  ASSERT_TRUE(server_->Snapshot(1).ok());
  EXPECT_LE(server_->log().figures().segments, 3u);
  EXPECT_EQ(env_.List("/data/log")->size(), server_->log().figures().segments);
  const auto expected = server_->partitions();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, SegmentOfAFailedTryIsDeletedBeforeTheNextTry) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 1000;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, std::string(1000, 'x')));
  ASSERT_TRUE(server_->WaitDurable(1));
  // The new segment has its name, but its folder cannot be synced, nor can it be deleted at once.
  env_.FailFolderSyncs(1);
  env_.FailDeletions(1);
  ASSERT_TRUE(server_->Append(1, "y"));
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(env_.List("/data/log")->size(), server_->log().figures().segments);
  // The next start does not take it for a part of the log once its predecessor is gone.
  ASSERT_TRUE(server_->Snapshot(1).ok());
  ASSERT_TRUE(server_->Append(1, "z"));
  ASSERT_TRUE(server_->WaitDurable(1));
  ASSERT_TRUE(server_->Snapshot(1).ok());
  const auto expected = server_->partitions();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, SegmentWithoutItsNameLeavesNothing) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 1000;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, std::string(1000, 'x')));
  ASSERT_TRUE(server_->WaitDurable(1));
  ASSERT_TRUE(ArmFailpoints("log.segment_rename=error@1").ok());
  ASSERT_TRUE(server_->Append(1, "y"));
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(FailpointHits()["log.segment_rename"], 2u);
  ASSERT_TRUE(ArmFailpoints("").ok());
  EXPECT_EQ(env_.List("/data/log")->size(), server_->log().figures().segments);
}

TEST_F(WriteAheadLogTest, EndedSegmentGetsASuccessorWithoutAppends) {
  Restart();
  ASSERT_TRUE(server_->Append(1, "x"));
  ASSERT_TRUE(server_->WaitDurable(1));
  const uint64_t segments = server_->log().figures().segments;
  server_->log().EndSegment();
  EXPECT_TRUE(Eventually([&] { return server_->log().figures().segments == segments + 1; }));
  ASSERT_TRUE(server_->Append(1, "y"));
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->log().figures().segments, segments + 1);
  const auto expected = server_->partitions();
  Restart();
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, ReleaseBeforeADropDoesNotAffectTheNewPartition) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 500;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, std::string(400, 'x')));
  ASSERT_TRUE(server_->WaitDurable(1));
  const LogPosition start_position = server_->log().DurablePosition();
  ASSERT_TRUE(server_->Drop(1));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(server_->Append(1, std::string(400, 'y')));
    ASSERT_TRUE(server_->WaitDurable(1));
  }
  // By a snapshot that was committed before the drop; the caller comes late.
  ASSERT_TRUE(server_->log().Release(1, 100, start_position).ok());
  const auto expected = server_->partitions();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, FailedDeletionIsRetriedLater) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 500;
  Restart(options);
  ASSERT_TRUE(server_->Append(1, std::string(400, 'x')));
  ASSERT_TRUE(server_->WaitDurable(1));
  ASSERT_TRUE(server_->Snapshot(1).ok());
  env_.FailDeletions(1);
  ASSERT_TRUE(server_->Drop(1));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(server_->Append(2, std::string(400, 'y')));
    ASSERT_TRUE(server_->WaitDurable(2));
  }
  ASSERT_TRUE(server_->Snapshot(2).ok());
  ASSERT_TRUE(server_->Append(2, "x"));
  ASSERT_TRUE(server_->WaitDurable(2));
  ASSERT_TRUE(server_->Snapshot(2).ok());
  EXPECT_LE(server_->log().figures().segments, 3u);
  const auto expected = server_->partitions();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
}

TEST_F(WriteAheadLogTest, DroppedPartitionNeedsNoLogAndReturnsAtAnyIndex) {
  WriteAheadLogOptions options = StorageHarness::QuickOptions();
  options.segment_bytes = 500;
  Restart(options);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(server_->Append(1, std::string(400, 'x')));
  ASSERT_TRUE(server_->WaitDurable(1));
  ASSERT_TRUE(server_->Snapshot(1).ok());
  ASSERT_TRUE(server_->Append(1, "after the snapshot"));
  ASSERT_TRUE(server_->Drop(1));
  EXPECT_TRUE(server_->snapshots().List().empty());
  Restart(options);
  EXPECT_TRUE(server_->partitions().empty());
  // From a snapshot with a smaller index than it had.
  server_->partition(1) = {3, 0x1234};
  ASSERT_TRUE(server_->Snapshot(1).ok());
  ASSERT_TRUE(server_->Append(1, "again"));
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->log().figures().segments, 2u) << "the previous last one, and a new one";
  const auto expected = server_->partitions();
  Restart(options);
  EXPECT_EQ(server_->partitions(), expected);
  // From nothing.
  ASSERT_TRUE(server_->Drop(1));
  ASSERT_TRUE(server_->Append(1, "new"));
  ASSERT_TRUE(server_->WaitDurable(1));
  Restart(options);
  EXPECT_EQ(server_->partitions().at(1).index, 1u);
}

}  // namespace
}  // namespace pawl
