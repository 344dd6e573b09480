// A server's log as the past of its partitions: going back to an earlier state, and reading entries
// for other replicas.
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "server/replication/log_entry.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/storage/snapshot/snapshot_store.h"
#include "server/storage/testing/server_log_fixture.h"

namespace pawl {
namespace {

constexpr size_t kUnlimited = size_t{1} << 40;

class ServerLogHistoryTest : public ServerLogTest {
 protected:
  using Entries = absl::StatusOr<std::vector<StoredEntry>>;

  // Segments of a few records; the compactor writes snapshots when the log has grown by half of
  // `log_bytes`.
  void RestartWith(uint64_t log_bytes) {
    ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
    options.log_bytes = log_bytes;
    options.log.segment_bytes = 3000;
    Restart(options);
  }
  void Change(uint32_t partition, int count) {
    for (int i = 0; i < count; i += 5) {
      server_->Change(partition, 5);
      ASSERT_TRUE(server_->WaitDurable(partition));
    }
  }
  void ChangeUntilFirstSegmentIsDeleted() {
    ASSERT_TRUE(Eventually([&] {
      for (const uint32_t p : {0, 1}) Change(p, 5);
      return !env_.FileSize("/data/log/0000000001.log").ok();
    }));
  }
  std::future<Entries> BeginRead(uint32_t partition, uint64_t first, uint64_t last,
                                 size_t max_bytes = kUnlimited) {
    auto promise = std::make_shared<std::promise<Entries>>();
    server_->log().ReadEntries(partition, first, last, max_bytes, [promise](Entries entries) {
      promise->set_value(std::move(entries));
    });
    return promise->get_future();
  }
  Entries Read(uint32_t partition, uint64_t first, uint64_t last, size_t max_bytes = kUnlimited) {
    return BeginRead(partition, first, last, max_bytes).get();
  }
  // The entries are whole, in order, and have the terms of `term_of`.
  template <typename TermOf>
  void ExpectEntries(const Entries& entries, uint32_t partition, uint64_t first, uint64_t last,
                     TermOf term_of) {
    ASSERT_TRUE(entries.ok()) << entries.status();
    ASSERT_EQ(entries->size(), last - first + 1);
    for (const StoredEntry& entry : *entries) {
      EXPECT_EQ(entry.index, first++);
      EXPECT_EQ(entry.term, term_of(entry.index)) << entry.index;
      const absl::StatusOr<ChangeView> change = DecodeLogEntry(entry.bytes);
      ASSERT_TRUE(change.ok()) << change.status();
      EXPECT_EQ(change->partition, partition);
      EXPECT_EQ(change->index, entry.index);
      EXPECT_EQ(change->term, entry.term);
    }
  }
  void ExpectReadBack(uint32_t partition, uint64_t index) {
    const auto read = server_->log().ReadBack(partition, index);
    ASSERT_TRUE(read.ok()) << index << ": " << read.status();
    EXPECT_EQ((*read)->log_index(), index);
    EXPECT_EQ(Fingerprint(**read), ServerLogHarness::FingerprintAt(partition, index)) << index;
  }
  void ExpectNotFound(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  }
};

TEST_F(ServerLogHistoryTest, ReadBackReturnsTheEarlierPartition) {
  RestartWith(1 << 30);
  Change(2, 50);
  Change(1, 200);
  for (const uint64_t index : {0, 1, 57, 199, 200}) ExpectReadBack(1, index);
  ExpectNotFound(server_->log().ReadBack(1, 201).status());
  // A part of the last group can be read as well as one that is queued.
  server_->Change(1, 3);
  ExpectReadBack(1, 203);
}

TEST_F(ServerLogHistoryTest, ReadBackReachesTheOlderSnapshot) {
  RestartWith(20'000);
  ChangeUntilFirstSegmentIsDeleted();
  const uint64_t last = server_->index(1);
  bool reached = false;
  for (uint64_t index = 1; index <= last; ++index) {
    const auto read = server_->log().ReadBack(1, index);
    if (!read.ok()) {
      ExpectNotFound(read.status());
      EXPECT_FALSE(reached) << index << " is missing, but an earlier one is not";
      continue;
    }
    reached = true;
    EXPECT_EQ(Fingerprint(**read), ServerLogHarness::FingerprintAt(1, index)) << index;
  }
  EXPECT_TRUE(reached);
  ExpectNotFound(server_->log().ReadBack(1, 1).status());
}

TEST_F(ServerLogHistoryTest, TruncatedLogIsReadBackWithItsContinuation) {
  RestartWith(1 << 30);
  Change(1, 60);
  ASSERT_TRUE(server_->GoBack(1, 33).ok());
  ASSERT_TRUE(server_->WaitDurable(1)) << "the truncation is reported";
  ExpectAt(1, 33);
  Change(1, 20);
  for (const uint64_t index : {5, 33, 34, 53}) ExpectReadBack(1, index);
  ExpectNotFound(server_->log().ReadBack(1, 54).status());
  ASSERT_TRUE(server_->Install(1, 500).ok());
  Change(1, 20);
  for (const uint64_t index : {500, 501, 520}) ExpectReadBack(1, index);
  ExpectNotFound(server_->log().ReadBack(1, 499).status());
  ASSERT_TRUE(server_->GoBack(1, 510).ok());
  ASSERT_TRUE(server_->GoBack(1, 505).ok()) << "the one before is still queued";
  Change(1, 10);
  for (const uint64_t index : {500, 505, 515}) ExpectReadBack(1, index);
  Kill();
  RestartWith(1 << 30);
  ExpectAt(1, 515);
  for (const uint64_t index : {500, 505, 515}) ExpectReadBack(1, index);
  ASSERT_TRUE(server_->GoBack(1, 500).ok());
  ASSERT_TRUE(server_->WaitDurable(1));
  Kill();
  RestartWith(1 << 30);
  ExpectAt(1, 500);
  ASSERT_TRUE(server_->GoBack(1, 0).ok());
  Change(1, 5);
  Kill();
  RestartWith(1 << 30);
  ExpectAt(1, 5);
}

TEST_F(ServerLogHistoryTest, CompactorSkipsPartitionThatMayBeTruncated) {
  RestartWith(20'000);
  for (int i = 0; i < 10; ++i) Change(i % 2, 20);
  const uint64_t index = server_->index(1);
  ExpectReadBack(1, index);
  // Rounds of snapshots, which would make the read entries unreachable.
  const uint64_t rounds = server_->log().compaction_rounds();
  while (server_->log().compaction_rounds() < rounds + 3) Change(0, 20);
  const auto holds = [&] {
    const auto names = env_.List("/data/snapshots");
    for (const std::string& name : *names) {
      if (name.find("p000001") == 0 && name.find(".tmp") == std::string::npos) return true;
    }
    return false;
  };
  server_->Change(1, 1);
  EXPECT_TRUE(Eventually([&] {
    Change(0, 20);
    return holds();
  })) << "after a change it is compacted again";
  Kill();
  RestartWith(20'000);
  ExpectAt(1, index + 1);
}

TEST_F(ServerLogHistoryTest, EntriesOfSeveralPartitionsAreReadFromManySegments) {
  RestartWith(1 << 30);
  for (int i = 0; i < 40; ++i) {
    server_->set_term(i < 20 ? 1 : 2);
    Change(i % 2, 5);
  }
  EXPECT_GT(server_->log().figures().segments, 5u);
  const auto term_of = [](uint64_t index) { return index <= 50 ? 1 : 2; };
  auto one = BeginRead(0, 1, 100);
  auto two = BeginRead(1, 37, 81);
  auto three = BeginRead(0, 100, 100);
  ExpectEntries(one.get(), 0, 1, 100, term_of);
  ExpectEntries(two.get(), 1, 37, 81, term_of);
  ExpectEntries(three.get(), 0, 100, 100, term_of);
  ExpectNotFound(Read(0, 50, 101).status());
  // As many as fit, at least one.
  const Entries first = Read(1, 40, 90, 1);
  ExpectEntries(first, 1, 40, 40, term_of);
  const size_t bytes = first->front().bytes.size();
  size_t count = 0;
  for (uint64_t next = 40; next <= 90; next += count) {
    const Entries some = Read(1, next, 90, 10 * bytes);
    ASSERT_TRUE(some.ok()) << some.status();
    count = some->size();
    ExpectEntries(some, 1, next, next + count - 1, term_of);
  }
  EXPECT_GT(count, 0u);
}

TEST_F(ServerLogHistoryTest, ReadWaitsForQueuedEntriesAndSkipsVoidOnes) {
  RestartWith(1 << 30);
  Change(1, 40);
  ASSERT_TRUE(server_->GoBack(1, 21).ok());
  server_->set_term(2);
  Change(1, 30);
  ASSERT_TRUE(server_->GoBack(1, 30).ok());
  server_->set_term(3);
  server_->Change(1, 20);
  const auto term_of = [](uint64_t index) { return index <= 21 ? 1 : index <= 30 ? 2 : 3; };
  ExpectEntries(Read(1, 10, 50), 1, 10, 50, term_of);
  ExpectNotFound(Read(1, 10, 51).status());
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 3);
  auto waits = BeginRead(1, 48, 53);
  env_.SetUnlimited();
  ExpectEntries(waits.get(), 1, 48, 53, term_of);
  Kill();
  RestartWith(1 << 30);
  ExpectEntries(Read(1, 10, 53), 1, 10, 53, term_of);
}

TEST_F(ServerLogHistoryTest, ReleasedOrReplacedEntriesAreNotFound) {
  RestartWith(20'000);
  ChangeUntilFirstSegmentIsDeleted();
  ExpectNotFound(Read(1, 1, server_->index(1)).status());
  ASSERT_TRUE(server_->Install(1, 500).ok());
  Change(1, 10);
  ExpectNotFound(Read(1, 500, 505).status());
  ExpectEntries(Read(1, 501, 510), 1, 501, 510, [](uint64_t) { return 1; });
}

TEST_F(ServerLogHistoryTest, LateTruncationIsRefusedAndChangesNothing) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 20'000;
  options.log.segment_bytes = 3000;
  options.retained_after_read_back = std::chrono::milliseconds(0);
  Restart(options);
  Change(1, 50);
  ASSERT_TRUE(server_->log().ReadBack(1, 30).ok());
  // Two rounds: the compactor has considered partition 1.
  const uint64_t rounds = server_->log().compaction_rounds();
  while (server_->log().compaction_rounds() < rounds + 2) Change(0, 20);
  EXPECT_EQ(server_->log().Truncate(1, 30).code(), absl::StatusCode::kAborted);
  Change(1, 5);
  server_->log().Stop();
  EXPECT_EQ(server_->log().Truncate(1, 30).code(), absl::StatusCode::kUnavailable);
  Restart(options);
  ExpectAt(1, 55);
}

TEST_F(ServerLogHistoryTest, LastSegmentReadIsCached) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 1 << 30;
  options.log.segment_bytes = 10'000;
  Restart(options);
  Change(1, 400);
  const std::string first = "/data/log/0000000001.log";
  ASSERT_GT(server_->log().figures().segments, 3u);
  const std::string contents = env_.Contents(first);
  uint64_t next = 1;
  const auto read = [&](size_t bytes) {
    const Entries some = Read(1, next, 400, bytes);
    if (some.ok()) next = some->back().index + 1;
    return some.status().code();
  };
  ASSERT_EQ(read(1), absl::StatusCode::kOk);
  env_.SetContents(first, "");
  ASSERT_EQ(read(1), absl::StatusCode::kOk);
  ASSERT_EQ(read(1), absl::StatusCode::kOk);
  ASSERT_EQ(next, 4u);
  // One segment is cached.
  ASSERT_TRUE(Read(1, 400, 400).ok());
  EXPECT_EQ(read(1), absl::StatusCode::kDataLoss);
  env_.SetContents(first, contents);
  ASSERT_EQ(read(1), absl::StatusCode::kOk);
}

TEST_F(ServerLogHistoryTest, ReadFromFullDiskTimesOut) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.disk_timeout = std::chrono::milliseconds(100);
  Restart(options);
  Change(1, 20);
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 1);
  EXPECT_EQ(Read(1, 10, 21).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Read(1, 10, 20).ok());
  env_.SetUnlimited();
}

TEST_F(ServerLogHistoryTest, ReadIsAbortedByAResetOrTheEndOfTheLog) {
  RestartWith(1 << 30);
  Change(1, 20);
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 1);
  auto reset = BeginRead(1, 10, 21);
  server_->Drop(1);
  env_.SetUnlimited();
  EXPECT_EQ(reset.get().status().code(), absl::StatusCode::kAborted);
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 5);
  auto ended = BeginRead(1, 1, 5);
  server_->log().Stop();
  EXPECT_EQ(ended.get().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Read(1, 1, 5).status().code(), absl::StatusCode::kAborted) << "after it has stopped";
  env_.SetUnlimited();
}

// Calls `before` before it opens a file for reading.
class WatchedEnv final : public ForwardingEnv {
 public:
  WatchedEnv(Env& env, std::function<void()> before)
      : ForwardingEnv(env), before_(std::move(before)) {}
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    before_();
    return ForwardingEnv::OpenForRead(path);
  }

 private:
  const std::function<void()> before_;
};

class StoppedReadBackTest : public ServerLogHistoryTest {
 protected:
  void TearDown() override { server_ = nullptr; }

  // Restarts the server, reads partition 1 back, and stops the log while the first file is opened.
  absl::Status ReadBackWhileTheLogStops(uint64_t index) {
    server_ = nullptr;
    ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
    options.log_bytes = 1 << 30;
    server_ = std::make_unique<ServerLogHarness>(watched_, options, FSYNC);
    EXPECT_TRUE(server_->Open().ok());
    ServerLog& log = server_->log();
    std::promise<absl::Status> answer;
    holds_ = true;
    log.ReadBackAsync(1, index, [&](auto read) { answer.set_value(read.status()); });
    EXPECT_EQ(held_.get_future().wait_for(kTestPatience), std::future_status::ready);
    auto stopped = std::async(std::launch::async, [&] { log.Stop(); });
    EXPECT_TRUE(Eventually([&] { return absl::IsUnavailable(log.ReadBack(2, 1).status()); }))
        << "Stop has not begun";
    go_.set_value();
    stopped.get();
    return answer.get_future().get();
  }

 private:
  std::atomic<bool> holds_{false};
  std::promise<void> held_;
  std::promise<void> go_;
  WatchedEnv watched_{env_, [this] {
                        if (!holds_.exchange(false)) return;
                        held_.set_value();
                        go_.get_future().wait();
                      }};
};

TEST_F(StoppedReadBackTest, NoFurtherSegmentIsRead) {
  RestartWith(1 << 30);
  Change(1, 200);
  ASSERT_GT(server_->log().figures().segments, 3u);
  EXPECT_EQ(ReadBackWhileTheLogStops(200).code(), absl::StatusCode::kUnavailable);
}

TEST_F(StoppedReadBackTest, SnapshotIsNotReadToItsEnd) {
  RestartWith(20'000);
  ChangeUntilFirstSegmentIsDeleted();
  Kill();
  SnapshotStore snapshots(env_, "/data", /*job_id=*/77);
  ASSERT_TRUE(snapshots.Open().ok());
  uint64_t newest = 0;
  for (const SnapshotStore::Snapshot& snapshot : snapshots.List()) {
    if (snapshot.partition == 1) newest = std::max(newest, snapshot.index);
  }
  ASSERT_GT(newest, 0u);
  // No segment has to be read.
  EXPECT_EQ(ReadBackWhileTheLogStops(newest).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pawl
