// After a failover: what the new primary learns about the backups, and what they get.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "server/replication/testing/replica_fixture.h"

namespace pawl {
namespace {

using FailoverTest = ReplicaTest;

TEST_F(FailoverTest, BackupGetsTheChangesThatItLacks) {
  BecomePrimaryAfter(3);
  ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
  ReplicateRequest question;
  ASSERT_TRUE(question.ParseFromString(transport_.calls.front().request));
  EXPECT_EQ(question.entries_size(), 0);
  ASSERT_EQ(question.asks_position_size(), 1);
  EXPECT_EQ(question.asks_position(0), 0u);
  // Meanwhile, a change of the new term.
  Create().IgnoreError();
  AnswerPosition(/*log_index=*/1, /*follows_since=*/2, {{1, 1}});
  EXPECT_EQ(EntriesSent(), (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(FailoverTest, CompleteBackupGetsNothing) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/3, /*follows_since=*/2, {{1, 1}});
  EXPECT_TRUE(transport_.calls.empty());
}

// Changes that only this backup has were never acknowledged, and the new primary assigns their
// indices to other changes.
TEST_F(FailoverTest, BackupAheadWithoutLogGetsASnapshot) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}});
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(FailoverTest, BackupAheadGoesBackAndContinues) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/5, /*follows_since=*/2, {{1, 1}, {3, 7}}, /*can_go_back=*/true);
  ASSERT_EQ(transport_.CallsOf(Method::kGoBack), 1u);
  GoBackRequest request;
  ASSERT_TRUE(request.ParseFromString(transport_.calls.front().request));
  EXPECT_EQ(request.primary_since(), 2u);
  EXPECT_EQ(request.index(), 2u);
  EXPECT_EQ(request.last_index(), 5u);
  EXPECT_EQ(request.last_term(), 7u);
  // A change of the new term, meanwhile.
  Create().IgnoreError();
  EXPECT_TRUE(EntriesSent().empty());
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(EntriesSent(), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(FailoverTest, BackupThatCannotGoBackGetsASnapshotEventually) {
  BecomePrimaryAfter(3);
  for (uint32_t i = 0; i < kMaxGoBacks; ++i) {
    ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u) << "it is asked for its position";
    AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
    ASSERT_EQ(transport_.CallsOf(Method::kGoBack), 1u);
    transport_.EndCalls(absl::DeadlineExceededError("its disk is slow"));
  }
  AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
  EXPECT_EQ(transport_.CallsOf(Method::kGoBack), 0u);
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  InstallSnapshotRequest snapshot;
  ASSERT_TRUE(snapshot.ParseFromString(transport_.calls.front().request));
  EXPECT_EQ(snapshot.log_index(), 3u);
  EXPECT_EQ(snapshot.log_term(), 1u);
}

TEST_F(FailoverTest, BackupWithShortLogGetsASnapshotAtOnce) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
  transport_.EndCalls(absl::NotFoundError("the log starts later"));
  EXPECT_EQ(transport_.CallsOf(Method::kReplicate), 0u);
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

TEST_F(FailoverTest, BackupThatIsReadingBackIsAskedAgain) {
  BecomePrimaryAfter(3);
  for (int i = 0; i < 5; ++i) {
    AnswerPosition(/*log_index=*/4, /*follows_since=*/0);
    EXPECT_TRUE(transport_.calls.empty());
    transport_.RunActions();
    ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
  }
  AnswerPosition(/*log_index=*/2, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{3});
}

// Pushes to the partition wait for it. If its disk hangs, it accepts no snapshot either, and is
// reported as silent.
TEST_F(FailoverTest, BackupThatReadsBackForTooLongGetsASnapshot) {
  BecomePrimaryAfter(3);
  const auto answers_for = [&](MonotonicDuration time, std::function<void()> answer) {
    for (const MonotonicTime end = clock_.Now() + time; clock_.Now() < end;) {
      answer();
      ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
      clock_.Advance(std::chrono::seconds(1));
      transport_.RunActions();
      ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
    }
  };
  const auto reads_back = [&] { AnswerPosition(/*log_index=*/4, /*follows_since=*/0); };
  // Another replica of the server is read back.
  const auto server_is_busy = [&] {
    AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
    ASSERT_EQ(transport_.CallsOf(Method::kGoBack), 1u);
    transport_.EndCalls(absl::UnavailableError("busy"));
  };
  ASSERT_NO_FATAL_FAILURE(answers_for(kGoBackTimeout / 2, server_is_busy));
  ASSERT_NO_FATAL_FAILURE(answers_for(kGoBackTimeout / 2, reads_back));
  reads_back();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
}

// Each one costs the memory of a second replica and a pass over the log.
TEST_F(FailoverTest, PartitionsOfABackupGoBackOneAtATime) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}}));
  for (uint32_t partition = 0; partition < kPartitions; ++partition) {
    ReplicateRequest change = BestKept(1, 1, 1, 1);
    change.mutable_entries(0)->set_partition(partition);
    ASSERT_TRUE((*Send(Method::kReplicate, change))->ok());
  }
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}, .since = 2}}));
  ReplicateResponse response;
  for (uint32_t partition = 0; partition < kPartitions; ++partition) {
    ReplicaPosition& position = *response.add_positions();
    position.set_partition(partition);
    position.set_log_index(2);
    position.set_follows_since(2);
    position.set_can_go_back(true);
    position.add_terms()->set_first_index(1);
    position.mutable_terms(0)->set_term(1);
  }
  transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  for (uint32_t partition = 0; partition < kPartitions; ++partition) {
    EXPECT_EQ(transport_.CallsOf(Method::kGoBack), 1u);
    transport_.EndCalls(absl::OkStatus());
  }
  EXPECT_EQ(transport_.CallsOf(Method::kGoBack), 0u);
}

// The answer to the request to go back was lost.
TEST_F(FailoverTest, BackupThatAlreadyWentBackContinues) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/4, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
  transport_.EndCalls(absl::UnavailableError("lost"));
  EXPECT_TRUE(transport_.calls.empty()) << "not at once: it may be busy";
  transport_.RunActions();
  ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
  AnswerPosition(/*log_index=*/2, /*follows_since=*/2, {{1, 1}}, /*can_go_back=*/true);
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{3});
}

TEST_F(FailoverTest, BackupWithoutASharedTermGetsASnapshot) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/2, /*follows_since=*/2, {{1, 7}});
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

// The entries belong to the replica before the snapshot.
TEST_F(FailoverTest, SnapshotDiscardsQueuedEntries) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0, 2}}, {.primary = 1}}));
  for (const uint64_t index : {1, 2})
    ASSERT_TRUE((*Send(Method::kReplicate, BestKept(1, 1, index, index)))->ok());
  auto other = EmptyPartition(0);
  ASSERT_TRUE(other->SetTerm(1).ok());
  for (uint64_t step = 11; step <= 13; ++step) other->KeepBest(step);
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, WholeSnapshot(1, 1, *other)))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}, .since = 2}, {.primary = 1}}));
  AnswerPosition(/*log_index=*/1, /*follows_since=*/2, {{1, 1}});
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_TRUE(EntriesSent().empty());
}

// It may have had another primary in between and accepted that one's changes.
TEST_F(FailoverTest, FollowerOfAnotherPrimaryHasNoPosition) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/1, /*follows_since=*/1, {{1, 1}});
  EXPECT_TRUE(EntriesSent().empty());
}

// By routings that it has not seen, another server may have been primary in between.
TEST_F(FailoverTest, ReinstatedPrimaryAsksItsBackupsAgain) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/3, /*follows_since=*/2, {{1, 1}});
  plane_->AdoptRouting(Routing(5, {{.primary = 0, .backups = {2}, .since = 5}, {.primary = 1}}));
  ASSERT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
  // The call ends with the data plane, after this test.
  const auto done = std::make_shared<int>(0);
  plane_->KeepBest(5, 9, [done](const absl::Status& status) { *done += status.ok(); });
  // Entries of another primary.
  AnswerPosition(/*log_index=*/5, /*follows_since=*/5, {{1, 1}, {4, 4}});
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  EXPECT_EQ(*done, 0);
}

// A request sent before its server stopped being primary is answered in the server's next term.
TEST_F(FailoverTest, UnrequestedAnswerIsNotAPosition) {
  BecomePrimaryAfter(3);
  // The position is asked again in another term while this answer is in flight.
  plane_->AdoptRouting(Routing(3, {{.primary = 2, .backups = {0}, .since = 3}, {.primary = 1}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 0, .backups = {2}, .since = 4}, {.primary = 1}}));
  AnswerPosition(/*log_index=*/1, /*follows_since=*/4, {{1, 1}});
  EXPECT_TRUE(EntriesSent().empty());
}

// A late answer, for example on a stream from the time as a learner: the index alone does not prove
// that the backup has these changes.
TEST_F(FailoverTest, PositionOfAnotherTermIsIgnored) {
  BecomePrimaryAfter(3);
  AnswerPosition(/*log_index=*/3, /*follows_since=*/2, {{1, 1}});
  int done = 0;
  const auto keep_best = [&](uint64_t step) {
    plane_->KeepBest(2, step, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      ++done;
    });
  };
  keep_best(9);
  ASSERT_EQ(EntriesSent(), std::vector<uint64_t>{4});
  AnswerPosition(/*log_index=*/4, /*follows_since=*/1);
  EXPECT_EQ(done, 0);
  keep_best(10);
  ASSERT_EQ(EntriesSent(), std::vector<uint64_t>{5});
  AnswerPosition(/*log_index=*/5, /*follows_since=*/2);
  EXPECT_EQ(done, 2);
}

// An in-sync learner could be handed the partition although it has given no promise: it would
// accept writes while the server with the promise still answers pulls.
TEST_F(FailoverTest, LearnerIsNotCaughtUpBeforePromisesExpire) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  ReplicateRequest asks;
  *asks.mutable_header() = HeaderOf(1, 1);
  asks.mutable_header()->set_wants_promise(true);
  ASSERT_TRUE((*Send(Method::kReplicate, asks))->ok());
  plane_->AdoptRouting(
      Routing(2, {{.primary = 0, .learners = {2}, .since = 2, .learners_since = 2}}));
  AnswerEmptyPositions();
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(Heartbeat().caught_up_size(), 0);
  clock_.Advance(kLease);
  EXPECT_EQ(Heartbeat().caught_up_size(), static_cast<int>(kPartitions));
}

}  // namespace
}  // namespace pawl
