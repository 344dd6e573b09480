// A server's log and snapshots: whose files they are, and how they stay short.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/base/testing/eventually.h"
#include "server/storage/testing/server_log_fixture.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

TEST(ServerLogFolderTest, DirectoryIsLocked) {
  const ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("locked"));
  auto first = ServerLog::Open(Env::Real(), options);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ServerLog::Open(Env::Real(), options).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), options.data_folder)) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), "in use by another process")) << second;
  first->reset();
  EXPECT_TRUE(ServerLog::Open(Env::Real(), options).ok());
}

TEST_F(ServerLogTest, NewDirectoryGetsTheIdentityOfItsServer) {
  {
    const auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
    EXPECT_FALSE(log->identity().has_value());
  }
  Restart();
  server_ = nullptr;
  const auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  ASSERT_TRUE(log->identity().has_value());
  EXPECT_EQ(log->identity()->node(), "server-0");
  EXPECT_EQ(log->identity()->job_id(), 77u);
  EXPECT_EQ(log->identity()->job().seed(), 3u);
}

TEST_F(ServerLogTest, EachStartIsCountedDespitePowerLoss) {
  Restart();
  EXPECT_EQ(server_->log().identity()->life(), 1u);
  server_ = nullptr;
  for (const uint32_t start_count : {2u, 3u}) {
    EXPECT_EQ(
        ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value()->identity()->life(),
        start_count);
    env_.CutPower();
    env_.RestorePower();
  }
}

TEST_F(ServerLogTest, StartCountContinuesInAnotherJob) {
  Restart();
  Restart();
  server_ = nullptr;
  server_ =
      std::make_unique<ServerLogHarness>(env_, ServerLogHarness::QuickOptions("/data"), FSYNC);
  ASSERT_TRUE(server_->Open("server-2", 78).ok());
  EXPECT_EQ(server_->log().identity()->life(), 3u) << "under which it has registered";
  server_ = nullptr;
  EXPECT_EQ(
      ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value()->identity()->life(),
      4u);
}

TEST_F(ServerLogTest, OpenFailsOnFullDiskAndSucceedsLater) {
  Restart();
  server_ = nullptr;
  env_.SetCapacity(env_.UsedBytes());
  const absl::Status status =
      ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  env_.SetUnlimited();
  EXPECT_EQ(
      ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value()->identity()->life(),
      2u);
}

TEST_F(ServerLogTest, AnotherJobsFilesAreDeleted) {
  Restart();
  server_->Change(1, 50);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  server_ =
      std::make_unique<ServerLogHarness>(env_, ServerLogHarness::QuickOptions("/data"), FSYNC);
  const absl::Status status = server_->Open("server-2", 78);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(server_->Has(1));
  server_->Change(2, 20);
  ASSERT_TRUE(server_->WaitDurable(2));
  server_ = nullptr;
  server_ =
      std::make_unique<ServerLogHarness>(env_, ServerLogHarness::QuickOptions("/data"), FSYNC);
  ASSERT_TRUE(server_->Open("server-2", 78).ok());
  EXPECT_FALSE(server_->Has(1));
  ExpectAt(2, 20);
}

TEST_F(ServerLogTest, LogWithoutItsNodeFileIsRefused) {
  Restart();
  server_->Change(1, 5);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  ASSERT_TRUE(env_.Delete("/data/node").ok());
  const absl::Status status =
      ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/data/node is missing")) << status;
}

TEST_F(ServerLogTest, JobWithoutALogLeavesOnlyItsIdentity) {
  auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  NodeIdentity identity;
  identity.set_node("server-1");
  identity.set_job_id(5);
  *identity.mutable_job() = HarnessJob(MEMORY);
  ASSERT_TRUE(log->Initialize(identity).ok());
  EXPECT_FALSE(log->Logs());
  log.reset();
  log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  ASSERT_TRUE(log->identity().has_value());
  EXPECT_TRUE(log->Recover(HarnessPartitionOptions())->empty());
}

TEST_F(ServerLogTest, LogStaysShortUnderChanges) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 50'000;
  Restart(options);
  // Two of each partition.
  const auto snapshot_bytes = [&] {
    uint64_t bytes = 0;
    const std::vector<std::string> files = *env_.List("/data/snapshots");
    for (const std::string& file : files)
      bytes += env_.FileSize(JoinPath("/data/snapshots", file)).value_or(0);
    return bytes;
  };
  for (int i = 0; i < 200; ++i) {
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) server_->Change(p, 10);
    ASSERT_TRUE(server_->WaitAllDurable());
    ASSERT_TRUE(Eventually([&] {
      return server_->log().figures().segment_bytes < 3 * options.log_bytes + snapshot_bytes();
    }));
  }
  EXPECT_GT(server_->log().figures().payload_bytes, 4 * snapshot_bytes());
  EXPECT_GT(server_->log().figures().payload_bytes, 10 * options.log_bytes);
  // One more lies there until the compactor has deleted the oldest.
  EXPECT_TRUE(Eventually(
      [&] { return env_.List("/data/snapshots")->size() <= kHarnessPartitions * kSnapshotsKept; }));
  Restart(options);
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) ExpectAt(p, 2000);
}

TEST_F(ServerLogTest, IdlePartitionDoesNotRetainTheLog) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 50'000;
  Restart(options);
  server_->Change(3, 7);
  ASSERT_TRUE(server_->WaitDurable(3));
  const auto is_short = [&] { return !env_.FileSize("/data/log/0000000001.log").ok(); };
  for (int i = 0; i < 2000 && !is_short(); ++i) {
    server_->Change(0, 20);
    ASSERT_TRUE(server_->WaitDurable(0));
  }
  EXPECT_TRUE(is_short());
  const uint64_t index = server_->index(0);
  Restart(options);
  ExpectAt(0, index);
  ExpectAt(3, 7);
}

TEST_F(ServerLogTest, FailedSnapshotIsRetried) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 1 << 30;
  Restart(options);
  // More than one segment, whatever is written as one group.
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
    server_->Change(p, 300);
    ASSERT_TRUE(server_->WaitDurable(p));
  }
  options.log_bytes = 30'000;
  server_ = nullptr;
  // Nothing fits except what the start itself writes.
  env_.SetCapacity(env_.UsedBytes() + 1000);
  server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
  ASSERT_TRUE(server_->Open().ok());
  // Without the effects of a try that is in progress.
  const auto has_snapshots = [&] {
    const std::vector<std::string> files = *env_.List("/data/snapshots");
    return std::any_of(files.begin(), files.end(),
                       [](const std::string& file) { return !absl::EndsWith(file, ".tmp"); });
  };
  ASSERT_TRUE(Eventually([&] { return server_->log().compaction_rounds() > 2; }));
  EXPECT_FALSE(has_snapshots());
  env_.SetUnlimited();
  EXPECT_TRUE(Eventually(has_snapshots));
}

TEST_F(ServerLogTest, FullQueueHasNoRoom) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log.max_queued_bytes = 1000;
  Restart(options);
  EXPECT_TRUE(server_->log().CheckRoom(500).ok());
  EXPECT_EQ(server_->log().CheckRoom(1000).code(), absl::StatusCode::kResourceExhausted);
  // It is no failure of the disk.
  env_.HoldSyncs();
  while (server_->log().CheckRoom(0).ok()) server_->Change(1);
  EXPECT_TRUE(server_->log().WriteStatus().ok());
  env_.ReleaseSyncs();
  ASSERT_TRUE(server_->WaitDurable(1));
}

TEST_F(ServerLogTest, StartOnFullDiskFails) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  Restart(options);
  KillWithAnUnsettledEnd();
  const uint64_t used = env_.UsedBytes();
  options.disk_timeout = std::chrono::milliseconds(1);
  server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
  env_.SetCapacity(used);
  const absl::Status status = server_->Open();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "/data")) << status;
  env_.SetUnlimited();
  Restart();
  ExpectAt(1, 11);
}

// The thread cannot be interrupted in the system call, so Start returns when the call does; but it
// logs beforehand what it waits for.
TEST_F(ServerLogTest, StartOnHungDiskFailsInTime) {
  Restart();
  KillWithAnUnsettledEnd();
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.disk_timeout = std::chrono::milliseconds(1);
  server_ = nullptr;
  const auto log = ServerLog::Open(env_, options).value();
  ASSERT_TRUE(log->Recover(HarnessPartitionOptions()).ok());
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  env_.HoldSyncs();
  struct Owner final : DurableLog::Owner {
    bool OnDurable(uint32_t) override { return true; }
    std::optional<HeldSnapshot> Hold(uint32_t) override { return std::nullopt; }
  } owner;
  std::future<absl::Status> started =
      std::async(std::launch::async, [&] { return log->Start(owner, HarnessPartitionOptions()); });
  const bool logged = Eventually([&] {
    const std::vector<std::string> all = lines->last_formatted();
    return std::any_of(all.begin(), all.end(), [](const std::string& line) {
      return absl::StrContains(line,
                               "the log in /data cannot be written: the disk does not answer");
    });
  });
  env_.ReleaseSyncs();
  const absl::Status status = started.get();
  spdlog::set_default_logger(before);
  EXPECT_TRUE(logged);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/data")) << status;
}

TEST_F(ServerLogTest, DroppedPartitionIsGone) {
  Restart();
  server_->Change(1, 20);
  server_->Change(2, 20);
  server_->Drop(1);
  server_->Change(2, 1);
  ASSERT_TRUE(server_->WaitDurable(2));
  Kill();
  Restart();
  EXPECT_FALSE(server_->Has(1));
  ExpectAt(2, 21);
}

TEST_F(ServerLogTest, DroppedPartitionReturnsFromASnapshotOfAnyIndex) {
  for (const uint64_t index : {0, 1, 19, 20, 21, 300}) {
    env_.KillProcesses();
    Restart();
    if (server_->Has(1)) server_->Drop(1);
    server_->Change(1, 20);
    server_->Drop(1);
    ASSERT_TRUE(Eventually([&] { return server_->Install(1, index).ok(); }));
    server_->Change(1, 3);
    ASSERT_TRUE(server_->WaitDurable(1));
    Kill();
    Restart();
    ExpectAt(1, index + 3);
  }
}

TEST_F(ServerLogTest, DroppedPartitionRestartsAtOnceAsANewOne) {
  Restart();
  server_->Change(2, 1);
  ASSERT_TRUE(server_->WaitDurable(2));
  // Everything is written in one group.
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 20);
  server_->Drop(1);
  server_->Change(1, 10);
  server_->Drop(1);
  server_->Change(1, 2);
  env_.SetUnlimited();
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->wrong_reports(), 0u);
  EXPECT_EQ(server_->durable(1), 2u);
  Kill();
  Restart();
  ExpectAt(1, 2);
}

TEST_F(ServerLogTest, NothingIsDurableAfterAResetOfAStoppedLog) {
  Restart();
  for (const uint32_t p : {1, 2}) {
    server_->Change(p, 20);
    ASSERT_TRUE(server_->WaitDurable(p));
  }
  ServerLog& log = server_->log();
  auto stored = log.StoreSnapshot(1, HoldSnapshot(Partition(1, HarnessPartitionOptions())));
  ASSERT_TRUE(stored.ok()) << stored.status();
  log.Stop();
  EXPECT_EQ(log.DurableIndex(1), 20u);
  log.Replace(1, *std::move(stored));
  EXPECT_EQ(log.DurableIndex(1), 0u);
  log.Drop(2);
  EXPECT_EQ(log.DurableIndex(2), 0u);
  Restart();
  ExpectAt(1, 20);
  ExpectAt(2, 20);
}

// A caller is one of gRPC's few threads.
TEST_F(ServerLogTest, CallersWaitForNoDisk) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  ServerLog& log = server_->log();
  const auto earlier = log.ReadBack(1, 10);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  env_.HoldSyncs();
  std::promise<absl::Status> stored_promise;
  std::future<absl::Status> stored = stored_promise.get_future();
  auto stores = std::async(std::launch::async, [&] {
    log.StoreSnapshotAsync(1, HoldSnapshot(**earlier),
                           [&](auto snapshot) { stored_promise.set_value(snapshot.status()); });
  });
  EXPECT_EQ(stores.wait_for(kTestPatience), std::future_status::ready);
  // Pushes may wait for a replica that goes back.
  std::promise<absl::Status> read_promise;
  std::future<absl::Status> read = read_promise.get_future();
  log.ReadBackAsync(1, 15, [&](auto partition) { read_promise.set_value(partition.status()); });
  EXPECT_EQ(read.wait_for(kTestPatience), std::future_status::ready);
  EXPECT_EQ(stored.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  env_.ReleaseSyncs();
  EXPECT_TRUE(read.get().ok());
  EXPECT_TRUE(stored.get().ok());
}

TEST_F(ServerLogTest, CallsOfAStoppedLogAreAnswered) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  ServerLog& log = server_->log();
  const auto earlier = log.ReadBack(1, 10);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  int answers = 0;
  const auto call = [&] {
    log.StoreSnapshotAsync(1, HoldSnapshot(**earlier), [&](auto) { ++answers; });
  };
  call();
  log.Stop();
  EXPECT_EQ(answers, 1);
  call();
  log.ReadBackAsync(1, 15, [&](auto read) {
    EXPECT_TRUE(absl::IsUnavailable(read.status())) << read.status();
    ++answers;
  });
  EXPECT_EQ(answers, 3);
}

TEST_F(ServerLogTest, NothingIsDurableWhileAResetIsQueued) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->log().DurableIndex(1), 20u);
  ASSERT_TRUE(server_->Install(1, 10).ok());
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->log().DurableIndex(1), 10u);
  env_.SetCapacity(env_.UsedBytes());
  server_->Drop(1);
  server_->Change(1, 5);
  EXPECT_EQ(server_->log().DurableIndex(1), 0u);
  env_.SetUnlimited();
  EXPECT_TRUE(server_->log().AwaitDurable(1, 5).ok());
  EXPECT_EQ(server_->log().DurableIndex(1), 5u);
}

TEST_F(ServerLogTest, BusyPartitionDelaysOnlyItsOwnReports) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  {
    MutexLock lock(server_->lock_of(1));
    const auto records = server_->log().figures().records;
    // The partition is busy, so it cannot be reported.
    server_->log().Append(1, 21, /*term=*/1, ByteView("x", 1), nullptr);
    server_->log().WriteQueued();
    ASSERT_TRUE(Eventually([&] { return server_->log().figures().records > records; }));
    server_->Change(2, 5);
    EXPECT_TRUE(server_->WaitDurable(2));
  }
  EXPECT_TRUE(Eventually([&] { return server_->wrong_reports() > 0; }))
      << "change 21, which the replica lacks, is reported";
}

}  // namespace
}  // namespace pawl
