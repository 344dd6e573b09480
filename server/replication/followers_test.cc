// What a primary sends to its followers, and what it reports about them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "server/replication/backpressure.h"
#include "server/replication/testing/replica_fixture.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

using FollowersTest = ReplicaTest;

TEST_F(FollowersTest, FollowerThatNeedsASnapshotHasNotCaughtUp) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimaryWithLearner(/*all_partitions=*/true));
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  Create(2).IgnoreError();
  ReplicateResponse lost;
  for (uint32_t p = 0; p < kPartitions; ++p) lost.add_positions()->set_partition(p);
  ASSERT_GT(transport_.CallsOf(Method::kReplicate), 0u);
  transport_.EndCalls(absl::OkStatus(), lost.SerializeAsString());
  EXPECT_EQ(CaughtUp(), 0);
}

// Whenever something arrives, more is already in flight.
TEST_F(FollowersTest, LearnerCatchesUpUnderContinuousPushes) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimaryWithLearner());
  // While the snapshot travels.
  const auto before = Send(Method::kPush, EmptyPush(0, 2, 0));
  EXPECT_TRUE(before->has_value()) << "acknowledged without the learner";
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), 0) << "it lacks what was acknowledged without it";
  uint64_t sent = 0;
  for (uint64_t ordinal = 1; ordinal < 10; ++ordinal) {
    const auto pushed = Send(Method::kPush, EmptyPush(0, 2, ordinal));
    EXPECT_FALSE(pushed->has_value()) << "acknowledged without the synchronous learner";
    ASSERT_FALSE(EntriesSent().empty());
    sent = EntriesSent().back();
    AnswerPosition(sent);
    EXPECT_EQ(CaughtUp(), 1);
  }
}

TEST_F(FollowersTest, SilentLearnerThatCountsIsReported) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimaryWithLearner());
  ASSERT_TRUE(Send(Method::kPush, EmptyPush(0, 2, 0))->has_value());
  transport_.EndCalls(absl::OkStatus());
  EXPECT_FALSE(Send(Method::kPush, EmptyPush(0, 2, 1))->has_value())
      << "acknowledged without the synchronous learner";
  for (int i = 0; i < 5; ++i) {
    transport_.EndCalls(absl::ResourceExhaustedError("its disk is full"));
    clock_.Advance(std::chrono::seconds(1));
    transport_.RunActions();
  }
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-1"});
}

// A call that waits for it does not wait for what another learner lacks.
TEST_F(FollowersTest, LearnerThatCountsMovesToAnotherStream) {
  ASSERT_NO_FATAL_FAILURE(BecomePrimaryWithLearner());
  ASSERT_TRUE(Send(Method::kPush, EmptyPush(0, 2, 0))->has_value());
  transport_.EndCalls(absl::OkStatus());
  ASSERT_EQ(EntriesSent().size(), 1u);
  const uint64_t lacked = EntriesSent().front();
  Send(Method::kPush, EmptyPush(0, 2, 1));
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{lacked})
      << "it is held until the others have arrived";
  AnswerPosition(lacked);
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{lacked + 1});
}

// By routings that did not reach its primary, it was dropped with its data and added again.
TEST_F(FollowersTest, BackupThatBecomesLearnerIsAskedAgain) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 0, .learners = {1}, .learners_since = 4}}));
  EXPECT_EQ(CaughtUp(), 0);
  AnswerEmptyPositions();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  EXPECT_EQ(CaughtUp(), 0);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  // Once more a learner.
  plane_->AdoptRouting(Routing(7, {{.primary = 0, .learners = {1}, .learners_since = 7}}));
  EXPECT_EQ(CaughtUp(), 0);
  AnswerEmptyPositions();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), kPartitions);
  EXPECT_EQ(CaughtUp(), 0);
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(CaughtUp(), static_cast<int>(kPartitions));
  // A learner that has caught up continues when it becomes a backup.
  plane_->AdoptRouting(Routing(8, {{.primary = 0, .backups = {1}}}));
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(FollowersTest, SilentFollowerIsReported) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  const auto reported = [&] {
    clock_.Advance(std::chrono::seconds(1));
    const std::vector<std::string> silent = Silent();
    return silent.empty() ? "" : silent.front();
  };
  EXPECT_EQ(reported(), "");
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(reported(), "") << "no try has failed yet";
  transport_.EndCalls(absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(reported(), "") << "it may only have been slow";
  transport_.RunActions();
  EXPECT_EQ(reported(), "");
  transport_.EndCalls(absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(reported(), "server-1");
  transport_.RunActions();
  EXPECT_EQ(reported(), "server-1");
  transport_.EndCalls(absl::OkStatus());
  EXPECT_EQ(reported(), "");
}

// A backup that answers, but so late that it holds up every acknowledgement, leaves as a silent one
// does; a single late answer is no reason.
TEST_F(FollowersTest, FollowerThatStaysSlowIsReported) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  uint64_t ordinal = 0;
  const auto answered_after = [&](MonotonicDuration time) {
    // There is always a change that the follower has not acknowledged.
    Send(Method::kPush, EmptyPush(0, 1, ordinal++));
    clock_.Advance(time);
    transport_.EndCalls(absl::OkStatus());
  };
  const auto slowly = [&](MonotonicDuration time) {
    for (MonotonicDuration passed{0}; passed < time; passed += kSlowAnswerTime)
      answered_after(kSlowAnswerTime);
  };
  answered_after(std::chrono::milliseconds(1));
  slowly(kMaxSlowTime - kSlowAnswerTime);
  EXPECT_EQ(Silent(), std::vector<std::string>{});
  answered_after(kSlowAnswerTime - std::chrono::milliseconds(1));
  slowly(kMaxSlowTime - kSlowAnswerTime);
  EXPECT_EQ(Silent(), std::vector<std::string>{}) << "an answer in time ends the count";
  slowly(2 * kSlowAnswerTime);
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-1"});
  answered_after(std::chrono::milliseconds(1));
  // The next heartbeat that looks at the streams.
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Silent(), std::vector<std::string>{});
}

// While data is loaded, for example, nothing is pushed.
TEST_F(FollowersTest, SlowAnswerBeforeAnIdleTimeIsNoReason) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  uint64_t ordinal = 0;
  const auto answer = [&] {
    while (transport_.CallsOf(Method::kReplicate) > 0) transport_.EndCalls(absl::OkStatus());
  };
  const auto push_takes = [&](MonotonicDuration time) {
    Send(Method::kPush, EmptyPush(0, 1, ordinal++));
    clock_.Advance(time);
    const std::vector<std::string> silent = Silent();
    answer();
    return silent;
  };
  answer();
  EXPECT_EQ(push_takes(kSlowAnswerTime), std::vector<std::string>{});
  clock_.Advance(kMaxSlowTime - std::chrono::milliseconds(100));
  EXPECT_EQ(push_takes(std::chrono::milliseconds(200)), std::vector<std::string>{})
      << "sent just now";
  EXPECT_EQ(push_takes(kSlowAnswerTime), std::vector<std::string>{});
  clock_.Advance(kMaxSlowTime);
  EXPECT_EQ(push_takes(kSlowAnswerTime), std::vector<std::string>{}) << "a slow one long after";
  EXPECT_EQ(push_takes(kMaxSlowTime), std::vector<std::string>{"server-1"});
}

TEST_F(FollowersTest, DroppedFollowerIsNotReportedAsSilent) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1, 2}}}));
  Create().IgnoreError();
  clock_.Advance(std::chrono::seconds(3));
  transport_.EndCalls(absl::DeadlineExceededError("no answer"));
  transport_.RunActions();
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {2}}}));
  transport_.EndCalls(absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-2"});
  transport_.RunActions();
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-2"});
}

TEST_F(FollowersTest, FailedSnapshotIsRetriedWithGrowingPauses) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .learners = {1}}, {.primary = 0}}));
  AnswerEmptyPositions();
  const auto fails_and_comes_after = [&](MonotonicDuration pause) {
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
    transport_.EndCalls(absl::UnavailableError("no"));
    plane_->Tick();
    clock_.Advance(pause - std::chrono::milliseconds(1));
    plane_->Tick();
    plane_->Tick();
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
    clock_.Advance(std::chrono::milliseconds(1));
    transport_.RunActions();
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  };
  fails_and_comes_after(kSnapshotRetryInterval);
  fails_and_comes_after(2 * kSnapshotRetryInterval);
  fails_and_comes_after(4 * kSnapshotRetryInterval);
  for (int i = 0; i < 10; ++i) {
    transport_.EndCalls(absl::UnavailableError("no"));
    clock_.Advance(kMaxSnapshotRetryInterval);
    transport_.RunActions();
  }
  fails_and_comes_after(kMaxSnapshotRetryInterval);
}

// The first push that would not fit is refused, and those before it are slowed. If the follower
// does not answer, no push is slowed.
TEST_F(FollowersTest, PushesAreSlowedWhileASnapshotTravels) {
  constexpr size_t kEntryBytes = kMaxLearnerBacklogBytes / 4;
  const auto memory = std::make_shared<std::string>(kEntryBytes, '\0');
  Replica replica(0, /*logs=*/false);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.stream = NewStream();
  follower.state = Follower::State::kInstalling;
  const auto push = [&](uint64_t i) PAWL_REQUIRES(replica.mu) {
    replica.SendToFollowers({0, i, ByteView(memory->data(), kEntryBytes), memory});
  };
  push(1);
  EXPECT_FALSE(replica.brakes);
  push(2);
  ASSERT_TRUE(replica.brakes);
  follower.install_end = clock_.Now() + std::chrono::seconds(10);
  ASSERT_TRUE(replica.ThrottlePush(kEntryBytes / 1024, clock_.Now()).has_value());
  const auto delay = replica.ThrottlePush(kEntryBytes / 1024, clock_.Now());
  ASSERT_TRUE(delay.has_value());
  // The rest of the backlog must last for ten seconds.
  EXPECT_NEAR(Seconds(*delay), 10 * (1.0 / 1024) / (4 * kSnapshotShare - 2), 0.001);
  push(3);
  push(4);
  EXPECT_FALSE(replica.ThrottlePush(1, clock_.Now()).has_value());
  // What was in flight when the bound was reached.
  push(5);
  EXPECT_EQ(follower.state, Follower::State::kInstalling);
  EXPECT_EQ(follower.held.size(), 5u);
  follower.install_fails = true;
  EXPECT_EQ(replica.ThrottlePush(1, clock_.Now()), MonotonicDuration::zero());
  EXPECT_FALSE(replica.brakes);
  push(6);
  EXPECT_EQ(follower.state, Follower::State::kNeedsSnapshot);
  EXPECT_EQ(follower.held_bytes, 0u);
  EXPECT_EQ(follower.failed_installs, 1u);
}

TEST_F(FollowersTest, TransferOfASnapshotDoesNotKeepTheLog) {
  const auto memory = std::make_shared<std::string>(kMaxHeldBytes, '\0');
  Replica replica(0, /*logs=*/true);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.stream = NewStream();
  const auto held_in = [&](Follower::State state) PAWL_REQUIRES(replica.mu) {
    replica.RequireSnapshot(follower);
    follower.state = state;
    for (uint64_t i = 1; i <= 2; ++i)
      replica.SendToFollowers({0, i, ByteView(memory->data(), kMaxHeldBytes), memory});
    return follower.held.size();
  };
  EXPECT_EQ(held_in(Follower::State::kInstalling), 2u);
  EXPECT_FALSE(replica.IsFollowerReadingLog());
  EXPECT_EQ(held_in(Follower::State::kCatchingUp), 1u);
  EXPECT_TRUE(replica.IsFollowerReadingLog()) << "it is sent the first entry from the log";
}

// Pushes that are faster than the stream would otherwise keep the backlog where they are slowed.
TEST_F(FollowersTest, PushesAreSlowedUntilTheBacklogIsNearlyEmpty) {
  const auto most_unbraked =
      static_cast<size_t>(kUnbrakedShare * static_cast<double>(kMaxLearnerBacklogBytes));
  const size_t nearly_empty = kNearlyCaughtUpBytes / kLearnersOfStream;
  const auto memory = std::make_shared<std::string>(most_unbraked + 1, '\0');
  Replica replica(0, /*logs=*/false);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.stream = NewStream();
  follower.state = Follower::State::kStreaming;
  uint64_t index = 0;
  const auto slows_at = [&](size_t backlog) PAWL_REQUIRES(replica.mu) {
    follower.stream->Discard(0);
    replica.SendToFollowers({0, ++index, ByteView(memory->data(), backlog), memory});
    replica.ThrottlePush(1'000'000, clock_.Now()).value();
    const bool slows = replica.ThrottlePush(1'000'000, clock_.Now()) > MonotonicDuration::zero();
    EXPECT_EQ(replica.brakes, slows);
    clock_.Advance(std::chrono::minutes(1));
    return slows;
  };
  EXPECT_FALSE(slows_at(most_unbraked));
  EXPECT_TRUE(slows_at(most_unbraked + 1));
  EXPECT_TRUE(slows_at(nearly_empty + 1));
  EXPECT_FALSE(slows_at(nearly_empty));
  EXPECT_FALSE(slows_at(most_unbraked));
  EXPECT_TRUE(slows_at(most_unbraked + 1));
  replica.RequireSnapshot(follower);
  follower.state = Follower::State::kStreaming;
  EXPECT_FALSE(slows_at(nearly_empty + 1)) << "its next snapshot starts afresh";
}

TEST_F(FollowersTest, EntriesAreExpectedToTravelAsFastAsTheSnapshot) {
  constexpr size_t kEntryBytes = kMaxLearnerBacklogBytes / 2;
  const auto memory = std::make_shared<std::string>(kEntryBytes, '\0');
  Replica replica(0, /*logs=*/false);
  MutexLock lock(replica.mu);
  Follower& follower = replica.followers.emplace_back();
  follower.stream = NewStream();
  follower.state = Follower::State::kStreaming;
  replica.SendToFollowers({0, 1, ByteView(memory->data(), kEntryBytes), memory});
  ASSERT_TRUE(replica.brakes);
  const auto delay_at = [&](MonotonicTime now) PAWL_REQUIRES(replica.mu) {
    replica.ThrottlePush(1'000'000, now).value();
    return Seconds(replica.ThrottlePush(1'000'000, now).value());
  };
  EXPECT_NEAR(delay_at(clock_.Now()), 1e6 / (kPushShare * kUnknownDrainBytesPerS), 1e-6);
  follower.snapshot_bytes_per_s = 1e8;
  EXPECT_NEAR(delay_at(clock_.Now() + std::chrono::seconds(1)), 1e6 / (kPushShare * 1e8), 1e-6);
}

TEST_F(FollowersTest, AddressOfUnlistedServerIsForgotten) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1, 2}}}));
  // Another incarnation at the same address, and one at another address.
  RoutingTable routing = Routing(2, {{.primary = 0}});
  routing.mutable_servers(1)->set_incarnation(2);
  routing.mutable_servers(2)->set_incarnation(2);
  routing.mutable_servers(2)->set_address("9");
  plane_->AdoptRouting(routing);
  EXPECT_EQ(transport_.forgotten, std::vector<std::string>{"2"});
  // Only once.
  routing.set_epoch(3);
  plane_->AdoptRouting(routing);
  EXPECT_EQ(transport_.forgotten.size(), 1u);
}

// This server is the primary, and server-1 learns partition 0 from it.
class FirstSnapshotTest : public ReplicaTest {
 protected:
  // The partition has the fewest blocks with more than `bytes` of parameters.
  void AddLearner(size_t bytes) {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
    plane_->CreateTable(plane_->epoch(), WithSgd(DenseTableSpec("large", {1 << 20}, kTable)),
                        [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
    PushRequest push = EmptyPush(0, 1);
    PushSegment& segment = *push.mutable_segments(0);
    for (uint64_t block = 0; segment.values().size() <= bytes; ++block) {
      if (PartitionOf(kTable, block, kPartitions) != 0) continue;
      segment.mutable_keys()->append(reinterpret_cast<const char*>(&block), sizeof(block));
      segment.mutable_values()->append(kBlockElements * sizeof(float), '\0');
    }
    EXPECT_TRUE(Send(Method::kPush, push)->value().ok());
    plane_->AdoptRouting(
        Routing(2, {{.primary = 0, .learners = {1}, .learners_since = 2}, {.primary = 0}}));
    AnswerEmptyPositions();
  }
};

// The snapshot has two pieces. The second piece waits for its turn once the first has been
// answered.
class LargeSnapshotTest : public FirstSnapshotTest {
 protected:
  explicit LargeSnapshotTest(uint64_t repair_bytes_per_s = 1) {
    options_.replication.repair_bytes_per_s = repair_bytes_per_s;
    options_.replication.processor_pressure = [this] { return pressure_; };
    AddLearner(kSnapshotPieceBytes);
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  }

  void FirstPieceArrives() {
    transport_.EndCalls(absl::OkStatus());
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u)
        << "the next piece waits for its turn";
  }

  double pressure_ = 0;
};

class FastSnapshotTest : public LargeSnapshotTest {
 protected:
  FastSnapshotTest() : LargeSnapshotTest(uint64_t{1} << 30) {}

  double PauseAfterFirstPiece() {
    FirstPieceArrives();
    return Seconds(transport_.last_delay);
  }
};

TEST_F(FastSnapshotTest, SpeedsUpWhileProcessorsAreIdle) {
  EXPECT_LT(PauseAfterFirstPiece(), kSnapshotPieceBytes / kBusyRepairBytesPerS);
}

TEST_F(FastSnapshotTest, StaysSlowWhileProcessorsAreScarce) {
  pressure_ = 0.6;
  EXPECT_NEAR(PauseAfterFirstPiece(), kSnapshotPieceBytes / kBusyRepairBytesPerS, 1e-6);
}

TEST_F(LargeSnapshotTest, NextSnapshotStartsOnceTheLastPieceIsSent) {
  const Roles learns = {.primary = 0, .learners = {1}, .learners_since = 2};
  plane_->AdoptRouting(Routing(3, {learns, learns}));
  // Also answers the first piece.
  AnswerEmptyPositions();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  transport_.RunActions();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 2u);
}

// Another piece would open another connection to it.
TEST_F(LargeSnapshotTest, DroppedServerGetsNoMorePieces) {
  ASSERT_NO_FATAL_FAILURE(FirstPieceArrives());
  plane_->AdoptRouting(Routing(3, {{.primary = 0}}, /*incarnation=*/1));
  transport_.RunActions();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
}

TEST_F(LargeSnapshotTest, OneFailedPieceIsNotSilence) {
  ASSERT_NO_FATAL_FAILURE(FirstPieceArrives());
  clock_.Advance(std::chrono::seconds(3));
  transport_.RunActions();
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  transport_.EndCalls(absl::UnavailableError("for a moment"));
  EXPECT_EQ(Silent(), std::vector<std::string>());
  // It accepts nothing from then on either.
  clock_.Advance(std::chrono::seconds(3));
  transport_.RunActions();
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  transport_.EndCalls(absl::UnavailableError("no answer"));
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-1"});
}

// It was of another learner of that server, which has been dropped.
TEST_F(LargeSnapshotTest, PieceThatFailedLongAgoIsNotSilence) {
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  transport_.EndCalls(absl::UnavailableError("for a moment"));
  plane_->AdoptRouting(Routing(3, {{.primary = 0}}));
  transport_.RunActions();
  clock_.Advance(std::chrono::hours(1));
  plane_->AdoptRouting(Routing(4, {{.primary = 0, .learners = {1}, .learners_since = 4}}));
  AnswerEmptyPositions();
  Heartbeat();
  transport_.RunActions();
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  clock_.Advance(std::chrono::milliseconds(100));
  transport_.EndCalls(absl::UnavailableError("for a moment"));
  EXPECT_EQ(Silent(), std::vector<std::string>());
}

// The first pieces of each snapshot are accepted: a full disk shows with the last one.
TEST_F(LargeSnapshotTest, ServerThatRefusesSnapshotsIsReported) {
  const auto refuses = [&](const absl::Status& status) {
    ASSERT_NO_FATAL_FAILURE(FirstPieceArrives());
    transport_.RunActions();
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
    transport_.EndCalls(status);
    clock_.Advance(kSnapshotRetryInterval);
  };
  const auto next = [&] {
    clock_.Advance(kMaxSnapshotRetryInterval);
    Heartbeat();
    transport_.RunActions();
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  };
  const absl::Status full = absl::ResourceExhaustedError("the disk is full");
  for (uint32_t i = 1; i < kMaxRefusedInstalls; ++i) {
    ASSERT_NO_FATAL_FAILURE(refuses(full));
    EXPECT_EQ(Silent(), std::vector<std::string>());
    ASSERT_NO_FATAL_FAILURE(next());
  }
  // It waits for snapshots of others.
  for (uint32_t i = 0; i < kMaxRefusedInstalls; ++i) {
    ASSERT_NO_FATAL_FAILURE(refuses(WithPushback(absl::ResourceExhaustedError("later"))));
    EXPECT_EQ(Silent(), std::vector<std::string>());
    ASSERT_NO_FATAL_FAILURE(next());
  }
  ASSERT_NO_FATAL_FAILURE(refuses(full));
  EXPECT_EQ(Silent(), std::vector<std::string>{"server-1"});
  clock_.Advance(kFailedInstallEvidenceTime);
  EXPECT_EQ(Silent(), std::vector<std::string>()) << "it may have room again";
}

// This server is the primary. Server-1 is in sync for partition 0, learns partition 1, and its disk
// is full.
class RefusedSnapshotTest : public ReplicaTest {
 protected:
  void SetUp() override {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}, {.primary = 0}}));
    Create().IgnoreError();
    AnswerPosition(1);
    plane_->AdoptRouting(Routing(
        2, {{.primary = 0, .backups = {1}}, {.primary = 0, .learners = {1}, .learners_since = 2}}));
    ReplicateResponse response;
    response.add_positions()->set_partition(1);
    transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  }
  void Refuse() {
    ASSERT_EQ(transport_.calls.size(), 1u);
    ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
    transport_.EndCalls(absl::ResourceExhaustedError("the disk is full"));
  }
  void SendNext() {
    clock_.Advance(kMaxSnapshotRetryInterval);
    transport_.RunActions();
  }
  // Only the replica of partition 1 is reported.
  void ExpectReported() {
    const HeartbeatRequest report = Heartbeat();
    ASSERT_EQ(report.silent_size(), 1);
    EXPECT_EQ(report.silent(0).node(), "server-1");
    ASSERT_TRUE(report.silent(0).has_partition());
    EXPECT_EQ(report.silent(0).partition(), 1u);
  }
};

TEST_F(RefusedSnapshotTest, IdleServerRemainsInSyncForOtherPartitions) {
  for (uint32_t i = 1; i < kMaxRefusedInstalls; ++i) {
    ASSERT_NO_FATAL_FAILURE(Refuse());
    SendNext();
  }
  ASSERT_NO_FATAL_FAILURE(Refuse());
  ExpectReported();
}

TEST_F(RefusedSnapshotTest, AcknowledgedPushesToOtherPartitionsDoNotHideTheRefusals) {
  uint64_t index = 1;
  for (uint32_t i = 1; i <= kMaxRefusedInstalls; ++i) {
    ASSERT_NO_FATAL_FAILURE(Refuse());
    const auto pushed = Send(Method::kPush, EmptyPush(0, 2, index));
    AnswerPosition(++index);
    ASSERT_TRUE(pushed->has_value());
    EXPECT_TRUE((*pushed)->ok()) << **pushed;
    if (i < kMaxRefusedInstalls) SendNext();
  }
  ExpectReported();
}

TEST_F(FirstSnapshotTest, PartitionOverTheLimitIsNotSent) {
  options_.replication.max_snapshot_bytes = 1000;
  AddLearner(1000);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
    clock_.Advance(kMaxSnapshotRetryInterval);
    Heartbeat();
    transport_.RunActions();
  }
  EXPECT_EQ(Silent(), std::vector<std::string>()) << "no fault of the follower";
}

// Pushes wait for it.
TEST_F(FollowersTest, BackupWhoseSnapshotIsOverTheLimitIsReported) {
  options_.replication.max_snapshot_bytes = 1;
  BecomePrimaryAfter(1);
  // It has more changes, and no log.
  AnswerPosition(/*log_index=*/2, /*follows_since=*/2, {{1, 1}});
  for (uint32_t i = 1; i < kMaxRefusedInstalls; ++i) {
    EXPECT_EQ(Heartbeat().silent_size(), 0);
    clock_.Advance(kMaxSnapshotRetryInterval);
    transport_.RunActions();
  }
  const HeartbeatRequest report = Heartbeat();
  EXPECT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  ASSERT_EQ(report.silent_size(), 1);
  EXPECT_EQ(report.silent(0).node(), "server-2");
  ASSERT_TRUE(report.silent(0).has_partition());
  EXPECT_EQ(report.silent(0).partition(), 0u);
}

// The snapshot is loaded and written before the last piece is answered.
TEST_F(LargeSnapshotTest, LastPieceHasTimeForTheWholeSnapshot) {
  EXPECT_EQ(transport_.calls.front().timeout, kSnapshotPieceDeadline);
  ASSERT_NO_FATAL_FAILURE(FirstPieceArrives());
  transport_.RunActions();
  ASSERT_EQ(transport_.CallsOf(Method::kInstallSnapshot), 1u);
  InstallSnapshotRequest last;
  ASSERT_TRUE(last.ParseFromString(transport_.calls.front().request));
  ASSERT_TRUE(last.last());
  const MonotonicDuration whole = TransferTime(last.offset() + last.data().size());
  EXPECT_GE(whole, std::chrono::milliseconds(1));
  EXPECT_EQ(transport_.calls.front().timeout, kSnapshotPieceDeadline + whole);
}

TEST_F(FollowersTest, OnlyRefusalsGrowTheRetryPause) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}, {.primary = 0}}));
  Create().IgnoreError();
  const auto pause_after = [&](const absl::Status& status) {
    EXPECT_EQ(transport_.CallsOf(Method::kReplicate), 1u);
    transport_.EndCalls(status);
    const MonotonicDuration pause = transport_.last_delay;
    transport_.RunActions();
    return pause;
  };
  const absl::Status full = absl::ResourceExhaustedError("its disk is full");
  EXPECT_EQ(pause_after(full), kStreamRetryInterval);
  EXPECT_EQ(pause_after(full), 2 * kStreamRetryInterval);
  for (int i = 0; i < 10; ++i) pause_after(full);
  EXPECT_EQ(pause_after(full), kMaxStreamRetryInterval);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(pause_after(absl::UnavailableError("away")), kStreamRetryInterval);
  EXPECT_EQ(pause_after(full), kStreamRetryInterval);
}

// A full disk must not become fuller by log lines about it.
TEST_F(FollowersTest, RefusalsAreLoggedOnceASecond) {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  const auto refusals = [&] {
    size_t count = 0;
    for (const auto& line : lines->last_formatted())
      count += line.find("its disk is full") != std::string::npos;
    return count;
  };
  const auto refuse = [&](int times) {
    for (int i = 0; i < times; ++i) {
      transport_.EndCalls(absl::ResourceExhaustedError("its disk is full"));
      transport_.RunActions();
    }
  };
  refuse(10);
  EXPECT_EQ(refusals(), 1u);
  clock_.Advance(kStreamRefusalLogInterval);
  refuse(10);
  EXPECT_EQ(refusals(), 2u);
  spdlog::set_default_logger(before);
}

// A caller that gives up leaves its push behind: a backup that accepts nothing for long must not
// use up the memory.
TEST_F(FollowersTest, UnreplicatedPushStaysInFlightAfterItsDeadline) {
  // Two of them fit.
  options_.max_bytes_in_flight = 2 * EmptyPush(0, 1, 9).ByteSizeLong();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}, {.primary = 0}}));
  Create().IgnoreError();
  AnswerPosition(1);
  const auto is_refused = [&](uint64_t ordinal) {
    const auto pushed = Send(Method::kPush, EmptyPush(0, 1, ordinal));
    if (!pushed->has_value()) return false;
    EXPECT_TRUE(absl::IsResourceExhausted(**pushed)) << **pushed;
    EXPECT_TRUE((*pushed)->GetPayload(kPushbackPayloadUrl).has_value());
    return true;
  };
  const std::vector given_up = {Send(Method::kPush, EmptyPush(0, 1, 1)),
                                Send(Method::kPush, EmptyPush(0, 1, 2))};
  EXPECT_TRUE(is_refused(3));
  clock_.Advance(std::chrono::seconds(11));
  plane_->Tick();
  for (const auto& pushed : given_up) EXPECT_TRUE(absl::IsDeadlineExceeded(**pushed));
  EXPECT_TRUE(is_refused(3));
  // The backup accepts the push in flight; the other one follows.
  AnswerPosition(2);
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{3});
  EXPECT_FALSE(is_refused(3));
  EXPECT_TRUE(is_refused(4));
  // The backup is dropped, and with it what it has not accepted.
  plane_->AdoptRouting(Routing(2, {{.primary = 0}}));
  const auto pushed = Send(Method::kPush, EmptyPush(0, 2, 4));
  ASSERT_TRUE(pushed->has_value());
  EXPECT_TRUE((*pushed)->ok()) << **pushed;
}

// The backup's entry shares no memory with the message.
TEST_F(FollowersTest, Unreplicated16BitPushStaysInFlight) {
  options_.max_bytes_in_flight = 1;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  Create().IgnoreError();
  const uint64_t block = 0;
  const auto push = [&](uint64_t ordinal) {
    PushRequest request = EmptyPush(PartitionOf(kTable, block, kPartitions), 1, ordinal);
    PushSegment& segment = *request.mutable_segments(0);
    segment.set_element_type(BFLOAT16);
    segment.mutable_keys()->assign(reinterpret_cast<const char*>(&block), sizeof(block));
    segment.mutable_values()->assign(10 * sizeof(uint16_t), '\0');
    return Send(Method::kPush, request);
  };
  const auto given_up = push(0);
  clock_.Advance(std::chrono::seconds(11));
  plane_->Tick();
  EXPECT_TRUE(absl::IsDeadlineExceeded(**given_up)) << **given_up;
  const auto next = push(1);
  ASSERT_TRUE(next->has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(**next)) << **next;
}

// The message that brought an entry also has those of other partitions, and may be a hundred times
// as large.
TEST_F(FollowersTest, EntryHeldForALearnerReleasesItsMessage) {
  const auto message_is_kept_for = [&](Follower::State state, bool is_synchronous) {
    Replica replica(0, /*logs=*/false);
    MutexLock lock(replica.mu);
    Follower& follower = replica.followers.emplace_back();
    follower.stream = NewStream();
    follower.state = state;
    follower.is_synchronous = is_synchronous;
    auto message = std::make_shared<const std::string>("entry, and those of others");
    const std::weak_ptr<const std::string> watched = message;
    replica.SendToFollowers({0, 1, ByteView(message->data(), 5), message});
    const bool is_retained = message.use_count() > 1;
    message = nullptr;
    EXPECT_EQ(watched.expired(), !is_retained);
    for (const ReplicationStream::Entry& held : follower.held) {
      std::string bytes(held.bytes.size(), '\0');
      held.bytes.CopyTo(bytes.data());
      EXPECT_EQ(bytes, "entry");
      EXPECT_EQ(held.index, 1u);
    }
    EXPECT_EQ(follower.held.size() * 5 + follower.stream->BytesOf(0), 5u);
    return is_retained;
  };
  for (const auto state :
       {Follower::State::kAsked, Follower::State::kInstalling, Follower::State::kStreaming}) {
    EXPECT_FALSE(message_is_kept_for(state, /*is_synchronous=*/false)) << static_cast<int>(state);
    EXPECT_TRUE(message_is_kept_for(state, /*is_synchronous=*/true)) << static_cast<int>(state);
  }
}

}  // namespace
}  // namespace pawl
