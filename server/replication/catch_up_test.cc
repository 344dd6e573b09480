// How a returning replica gets what it lacks, and goes back to the last change that it shares with
// its primary.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/replication/replicator.h"
#include "server/replication/testing/replica_fixture.h"

namespace pawl {
namespace {

// This server has a log and has followed server-1, whose changes 1 to 4 it has. Now it follows
// server-2.
class GoBackTest : public ReplicaTest {
 protected:
  GoBackTest() {
    log_ = std::make_unique<FakeDurableLog>();
    log_->on_read_back = [](uint64_t index) { return PartitionAfter(index); };
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}, {.primary = 1}}));
    for (uint64_t index = 1; index <= 4; ++index) {
      EXPECT_TRUE(Answer(Method::kReplicate, BestKept(1, 1, index, index)).ok());
    }
    plane_->AdoptRouting(Routing(2, {{.primary = 2, .backups = {0}, .since = 2}, {.primary = 1}}));
  }

  // The answer once the change is durable.
  absl::Status Answer(Method method, const google::protobuf::MessageLite& request) {
    const auto answer = Send(method, request);
    plane_->OnDurable(0);
    return answer->value_or(absl::UnknownError("no answer"));
  }
  ReplicaPosition PositionAfter(const ReplicateRequest& request) {
    EXPECT_TRUE(Answer(Method::kReplicate, request).ok());
    ReplicateResponse response;
    EXPECT_TRUE(response.ParseFromString(answered_) && response.positions_size() == 1);
    return response.positions_size() == 1 ? response.positions(0) : ReplicaPosition();
  }
  static GoBackRequest BackTo(uint64_t index) {
    GoBackRequest request;
    *request.mutable_header() = HeaderOf(2, 2);
    request.set_primary_since(2);
    request.set_index(index);
    request.set_last_index(4);
    request.set_last_term(1);
    return request;
  }
  uint64_t LogIndex() const { return plane_->ReplicasWithData()[0].log_index(); }
};

TEST_F(GoBackTest, ReplicaGoesBackAndContinuesWithItsPrimary) {
  const absl::Status gone = Answer(Method::kGoBack, BackTo(2));
  EXPECT_TRUE(gone.ok()) << gone;
  EXPECT_EQ(LogIndex(), 2u);
  EXPECT_EQ(log_->truncated, std::vector<uint64_t>{2});
  EXPECT_TRUE(Answer(Method::kReplicate, BestKept(2, 2, 3, 13)).ok());
  EXPECT_EQ(LogIndex(), 3u);
}

// Later changes may have been acknowledged.
TEST_F(GoBackTest, LateRequestIsRefused) {
  ASSERT_TRUE(Answer(Method::kGoBack, BackTo(2)).ok());
  EXPECT_TRUE(absl::IsAborted(Answer(Method::kGoBack, BackTo(2))));
  for (const uint64_t index : {3, 4})
    ASSERT_TRUE(Answer(Method::kReplicate, BestKept(2, 2, index, 10 + index)).ok());
  EXPECT_TRUE(absl::IsAborted(Answer(Method::kGoBack, BackTo(2)))) << "same index, another term";
  EXPECT_EQ(LogIndex(), 4u);
}

TEST_F(GoBackTest, RequestOfEarlierTermIsRefused) {
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .backups = {0}, .since = 3}, {.primary = 1}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 2, .backups = {0}, .since = 4}, {.primary = 1}}));
  EXPECT_TRUE(absl::IsFailedPrecondition(Answer(Method::kGoBack, BackTo(2))));
  GoBackRequest request = BackTo(2);
  request.mutable_header()->set_epoch(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(Answer(Method::kGoBack, request)));
  EXPECT_EQ(LogIndex(), 4u);
}

TEST_F(GoBackTest, RoutingChangeCancelsGoingBack) {
  log_->on_read_back = [&](uint64_t index) {
    plane_->AdoptRouting(Routing(3, {{.primary = 0, .since = 3}, {.primary = 1}}));
    return PartitionAfter(index);
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(Answer(Method::kGoBack, BackTo(2))));
  EXPECT_EQ(LogIndex(), 4u);
  EXPECT_TRUE(log_->truncated.empty());
  EXPECT_EQ(log_->forgotten_read_backs, std::vector<uint32_t>{0}) << "its log can be compacted";
}

TEST_F(GoBackTest, ShortLogLeavesReplicaUnchanged) {
  log_->on_read_back = [](uint64_t) { return absl::NotFoundError("the log starts later"); };
  EXPECT_TRUE(absl::IsNotFound(Answer(Method::kGoBack, BackTo(2))));
  EXPECT_EQ(LogIndex(), 4u);
  EXPECT_TRUE(Answer(Method::kReplicate, BestKept(2, 2, 5, 15)).ok())
      << "and accepts changes again";
  EXPECT_EQ(LogIndex(), 5u);
}

TEST_F(GoBackTest, ReplicaIsUnchangedWhileItIsReadBack) {
  log_->on_read_back = [&](uint64_t index) {
    EXPECT_TRUE(absl::IsUnavailable(Answer(Method::kGoBack, BackTo(1))));
    EXPECT_TRUE(Answer(Method::kReplicate, BestKept(2, 2, 5, 15)).ok());
    EXPECT_EQ(LogIndex(), 4u);
    return PartitionAfter(index);
  };
  EXPECT_TRUE(Answer(Method::kGoBack, BackTo(2)).ok());
  EXPECT_EQ(LogIndex(), 2u);
}

TEST_F(GoBackTest, EntryOfAnotherTermAtKnownIndexIsADivergence) {
  EXPECT_FALSE(PositionAfter(BestKept(2, 2, 4, 4, /*term=*/1)).has_diverged()) << "the same";
  EXPECT_TRUE(PositionAfter(BestKept(2, 2, 4, 4, /*term=*/2)).has_diverged());
  EXPECT_EQ(LogIndex(), 4u);
  EXPECT_FALSE(PositionAfter(BestKept(2, 2, 5, 5, /*term=*/2)).has_diverged());
  EXPECT_TRUE(PositionAfter(BestKept(2, 2, 6, 6, /*term=*/1)).has_diverged()) << "terms ascend";
  EXPECT_EQ(LogIndex(), 5u);
}

TEST_F(GoBackTest, SnapshotReplacesOnlyAReplicaThatDiverged) {
  // It has the snapshot's last entry, followed by void ones.
  const InstallSnapshotRequest snapshot = WholeSnapshot(2, 2, *PartitionAfter(2));
  ASSERT_TRUE(Answer(Method::kInstallSnapshot, snapshot).ok());
  EXPECT_EQ(LogIndex(), 2u);
  for (const uint64_t index : {3, 4})
    ASSERT_TRUE(Answer(Method::kReplicate, BestKept(2, 2, index, 10 + index)).ok());
  EXPECT_TRUE(Answer(Method::kInstallSnapshot, snapshot).ok()) << "it has that state";
  EXPECT_EQ(LogIndex(), 4u);
}

// The primary has given up waiting, is at change 3 of its own term, and concludes from an empty
// position that a snapshot is needed. An acknowledgement counts as stored, so the replica that is
// about to go back must not confirm the snapshot.
TEST_F(GoBackTest, ReplicaGoingBackDoesNotConfirmASnapshot) {
  auto primarys = PartitionAfter(2);
  ASSERT_TRUE(primarys->SetTerm(2).ok());
  primarys->KeepBest(13);
  const InstallSnapshotRequest snapshot = WholeSnapshot(2, 2, *primarys);
  log_->on_read_back = [&](uint64_t index) {
    ReplicateRequest asks;
    *asks.mutable_header() = HeaderOf(2, 2);
    asks.add_asks_position(0);
    EXPECT_TRUE(Answer(Method::kReplicate, asks).ok());
    EXPECT_TRUE(absl::IsUnavailable(Answer(Method::kInstallSnapshot, snapshot)));
    return PartitionAfter(index);
  };
  ASSERT_TRUE(Answer(Method::kGoBack, BackTo(2)).ok());
  EXPECT_EQ(LogIndex(), 2u);
  EXPECT_TRUE(Answer(Method::kInstallSnapshot, snapshot).ok()) << "the piece is sent again";
  EXPECT_EQ(LogIndex(), 3u);
}

TEST_F(GoBackTest, SnapshotReplacesLongerReplicaWithAnotherLastEntry) {
  auto primarys = PartitionAfter(2);
  ASSERT_TRUE(primarys->SetTerm(2).ok());
  primarys->KeepBest(13);
  EXPECT_TRUE(Answer(Method::kInstallSnapshot, WholeSnapshot(2, 2, *primarys)).ok());
  EXPECT_EQ(LogIndex(), 3u);
}

TEST_F(GoBackTest, OneReplicaIsReadBackAtATime) {
  plane_->AdoptRouting(Routing(
      3, {{.primary = 2, .backups = {0}, .since = 2}, {.primary = 2, .backups = {0}, .since = 3}}));
  log_->on_read_back = [&](uint64_t index) {
    GoBackRequest other = BackTo(0);
    other.mutable_header()->set_epoch(3);
    other.set_partition(1);
    EXPECT_TRUE(absl::IsUnavailable(Answer(Method::kGoBack, other)));
    return PartitionAfter(index);
  };
  EXPECT_TRUE(Answer(Method::kGoBack, BackTo(2)).ok());
  log_->on_read_back = nullptr;
  EXPECT_TRUE(absl::IsAborted(Answer(Method::kGoBack, BackTo(2)))) << "the next one is checked";
}

// This server has a log and returns as the primary, with the changes 1 to 4 of partition 0;
// server-2 follows.
class CatchUpTest : public ReplicaTest {
 protected:
  CatchUpTest() {
    log_ = std::make_unique<FakeDurableLog>();
    Begin();
    plane_->AddRecovered(PartitionAfter(4));
    plane_->AdoptRouting(Routing(5, {{.primary = 0, .backups = {2}, .since = 5}, {.primary = 1}}));
    clock_.Advance(kLease);
  }

  static StoredEntry Entry(uint64_t index, size_t size = 0) {
    LogEntry entry;
    entry.set_index(index);
    entry.set_term(1);
    entry.mutable_best_kept()->set_step(index);
    const auto bytes = std::make_shared<std::string>(entry.SerializeAsString());
    bytes->resize(std::max(size, bytes->size()));
    return {index, 1, ByteView(bytes->data(), bytes->size()), bytes};
  }
  void AnswerRead(absl::StatusOr<std::vector<StoredEntry>> entries) {
    auto read = std::move(log_->reads.front());
    log_->reads.pop_front();
    read.done(std::move(entries));
  }
};

TEST_F(CatchUpTest, EntriesMissingInTheTailComeFromTheLog) {
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  ASSERT_EQ(log_->reads.size(), 1u);
  EXPECT_EQ(log_->reads[0].first, 2u);
  EXPECT_EQ(log_->reads[0].last, 4u);
  // A change of the new term, meanwhile.
  Create().IgnoreError();
  EXPECT_TRUE(EntriesSent().empty());
  AnswerRead(std::vector<StoredEntry>{Entry(2), Entry(3)});
  ASSERT_EQ(log_->reads.size(), 1u) << "the rest";
  EXPECT_EQ(log_->reads[0].first, 4u);
  AnswerRead(std::vector<StoredEntry>{Entry(4)});
  std::vector<uint64_t> sent = EntriesSent();
  AnswerPosition(3, 5);
  for (const uint64_t index : EntriesSent()) sent.push_back(index);
  EXPECT_EQ(sent, (std::vector<uint64_t>{2, 3, 4, 5}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(CatchUpTest, ShortLogLeadsToASnapshot) {
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  AnswerRead(absl::NotFoundError("the log starts later"));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

// A failing disk never writes the other entries, and these are in memory.
TEST_F(CatchUpTest, OnlyDurableEntriesAreReadFromTheLog) {
  Create().IgnoreError();
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .backups = {1}, .since = 5}, {.primary = 1}}));
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  ASSERT_EQ(log_->reads.size(), 1u);
  EXPECT_EQ(log_->reads[0].last, 4u) << "of 5";
  AnswerRead(std::vector<StoredEntry>{Entry(2), Entry(3), Entry(4)});
  EXPECT_TRUE(log_->reads.empty());
  EXPECT_EQ(EntriesSent(), (std::vector<uint64_t>{2, 3, 4, 5}));
}

// The follower may be the only replica that this server can hand over to, and a snapshot needs no
// disk here.
TEST_F(CatchUpTest, SlowReadLeadsToASnapshot) {
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  ASSERT_EQ(log_->reads.size(), 1u);
  clock_.Advance(kLogReadTimeout - std::chrono::seconds(1));
  Heartbeat();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  clock_.Advance(std::chrono::seconds(1));
  Heartbeat();
  Heartbeat();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  AnswerRead(std::vector<StoredEntry>{Entry(2), Entry(3), Entry(4)});
  EXPECT_TRUE(EntriesSent().empty()) << "too late";
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

TEST_F(CatchUpTest, ReadFromFailingDiskIsAbandonedEarlier) {
  log_->room = absl::ResourceExhaustedError("full");
  Heartbeat();
  clock_.Advance(kDiskFailureReportDelay);
  EXPECT_TRUE(Heartbeat().has_disk_failure());
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  ASSERT_EQ(log_->reads.size(), 1u);
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  clock_.Advance(kFailingLogReadTimeout);
  Heartbeat();
  Heartbeat();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

// A replica that is locked, as at the end of a large step, hears later that its changes are
// durable.
TEST_F(CatchUpTest, DiskDoesNotHangIfAReplicaHasNotHeardOfIt) {
  for (const bool hangs : {false, true}) {
    log_->durable = 4;
    Create().IgnoreError();
    clock_.Advance(std::chrono::seconds(1));
    Heartbeat();
    if (!hangs) log_->durable = 100;
    clock_.Advance(kDiskHangTimeout + kDiskFailureReportDelay);
    Heartbeat();
    clock_.Advance(kDiskFailureReportDelay);
    EXPECT_EQ(Heartbeat().has_disk_failure(), hangs);
  }
}

TEST_F(CatchUpTest, FullQueueIsNotReportedAsAFailedDisk) {
  log_->room = absl::ResourceExhaustedError("too much is queued");
  log_->write_status = absl::OkStatus();
  Heartbeat();
  clock_.Advance(kDiskFailureReportDelay);
  EXPECT_FALSE(Heartbeat().has_disk_failure());
}

// Otherwise a snapshot by the log's own compaction would replace the entries that are to be read
// next, again and again.
TEST_F(CatchUpTest, LogIsNotCompactedWhileAFollowerCatchesUp) {
  EXPECT_TRUE(plane_->Hold(0).has_value());
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  ASSERT_EQ(log_->reads.size(), 1u);
  EXPECT_FALSE(plane_->Hold(0).has_value()) << "it catches up";
  AnswerRead(absl::NotFoundError("the log starts later"));
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(plane_->Hold(0).has_value()) << "the entries after its snapshot are in memory";
  transport_.EndCalls(absl::OkStatus());
  EXPECT_TRUE(plane_->Hold(0).has_value()) << "everything is in flight";
}

TEST_F(CatchUpTest, EntriesReadForAnEarlierTermAreIgnored) {
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .backups = {2}, .since = 6}, {.primary = 1}}));
  AnswerRead(std::vector<StoredEntry>{Entry(2), Entry(3), Entry(4)});
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(CatchUpTest, ReadsMoreWhenTheStreamRunsLow) {
  AnswerPosition(/*log_index=*/0, /*follows_since=*/5);
  for (uint64_t index = 1; index <= 3; ++index) {
    ASSERT_EQ(log_->reads.size(), 1u);
    EXPECT_EQ(log_->reads[0].first, index);
    AnswerRead(std::vector<StoredEntry>{Entry(index, kCatchUpChunkBytes / 2 - 1)});
  }
  EXPECT_TRUE(log_->reads.empty());
  AnswerPosition(1, 5);
  ASSERT_EQ(log_->reads.size(), 1u);
  EXPECT_EQ(log_->reads[0].first, 4u);
}

// Two more chunks of that size exceed the partition.
TEST_F(CatchUpTest, SnapshotReplacesLargerCatchUp) {
  AnswerPosition(/*log_index=*/1, /*follows_since=*/5, {{1, 1}});
  AnswerRead(std::vector<StoredEntry>{Entry(2, kCatchUpChunkBytes)});
  EXPECT_TRUE(log_->reads.empty());
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

// An answer with the terms of all positions would be too large.
TEST_F(CatchUpTest, PositionsAreAskedForInSeveralRequests) {
  const auto stream = NewStream();
  transport_.calls.clear();
  for (uint32_t partition = 0; partition < kMaxAsksInRequest + 5; ++partition)
    stream->AskPosition(partition);
  std::vector<uint32_t> asked;
  for (const size_t expected : {kMaxAsksInRequest, size_t{5}}) {
    stream->Pump();
    ASSERT_EQ(transport_.calls.size(), 1u);
    ReplicateRequest request;
    ASSERT_TRUE(request.ParseFromString(transport_.calls.front().request));
    EXPECT_EQ(static_cast<size_t>(request.asks_position_size()), expected);
    asked.insert(asked.end(), request.asks_position().begin(), request.asks_position().end());
    transport_.EndCalls(absl::OkStatus());
  }
  EXPECT_EQ(asked.size(), kMaxAsksInRequest + 5);
  EXPECT_EQ(asked.back(), kMaxAsksInRequest + 4);
  EXPECT_TRUE(transport_.calls.empty());
}

TEST_F(CatchUpTest, EntriesBeyondTheHeldLimitAreReadFromTheLog) {
  constexpr size_t kEntryBytes = kMaxHeldBytes / 4;
  const auto memory = std::make_shared<std::string>(kEntryBytes, '\0');
  Replica replica(0, /*logs=*/true);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.stream = NewStream();
  follower.state = Follower::State::kCatchingUp;
  for (uint64_t index = 7; index < 13; ++index) {
    replica.SendToFollowers({0, index, ByteView(memory->data(), kEntryBytes), memory});
  }
  EXPECT_EQ(follower.held.front().index, 9u);
  EXPECT_EQ(follower.held_bytes, kMaxHeldBytes);
  EXPECT_EQ(follower.unread_from, 7u);
  EXPECT_EQ(replica.BacklogOf(follower), 6 * kEntryBytes) << "it lacks as much as before";
}

}  // namespace
}  // namespace pawl
