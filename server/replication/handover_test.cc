// A primary that hands its partition over to a backup, and the backups meanwhile.
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "client_lib/base/limits.h"
#include "gtest/gtest.h"
#include "server/replication/testing/replica_fixture.h"

namespace pawl {
namespace {

class HandoverTest : public ReplicaTest {
 protected:
  // Server-0 is the primary of partition 0, and must yield to its backup server-1, which lacks the
  // first change.
  void Yield() {
    Begin();
    plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}, {.primary = 1}}));
    Create().IgnoreError();
    ASSERT_EQ(EntriesSent(), std::vector<uint64_t>{1});
    EXPECT_EQ(Heartbeat().routing_epoch(), 1u);
    plane_->AdoptRouting(HandsOver(/*from=*/0, /*to=*/1));
    clock_.Advance(std::chrono::milliseconds(100));
  }

  static RoutingTable HandsOver(uint32_t from, uint32_t to) {
    return Routing(2, {{.primary = kNoPrimary, .backups = {to}, .yielding = from}, {.primary = 1}});
  }
};

TEST_F(HandoverTest, FormerPrimaryActsByTheRoutingOnceItsBackupHasEverything) {
  Yield();
  EXPECT_TRUE(plane_->IsYielding());
  EXPECT_EQ(plane_->EpochToConfirm(), 0u);
  EXPECT_EQ(Heartbeat().routing_epoch(), 1u);
  AnswerPosition(/*log_index=*/1);
  EXPECT_FALSE(plane_->IsYielding());
  EXPECT_EQ(plane_->EpochToConfirm(), 2u) << "the scheduler waits for it";
  clock_.Advance(std::chrono::milliseconds(100));
  EXPECT_EQ(Heartbeat().routing_epoch(), 2u);
}

TEST_F(HandoverTest, FormerPrimarySendsItsChangesAgainIfTheyWereRefused) {
  Yield();
  transport_.EndCalls(absl::UnavailableError("the routing has not arrived"));
  transport_.RunActions();
  EXPECT_EQ(EntriesSent(), std::vector<uint64_t>{1});
  AnswerPosition(/*log_index=*/1);
  EXPECT_FALSE(plane_->IsYielding());
}

TEST_F(HandoverTest, HandoverEndsWithoutAnAnswer) {
  Yield();
  clock_.Advance(kMaxHandoverTime);
  plane_->Tick();
  EXPECT_FALSE(plane_->IsYielding());
  EXPECT_EQ(plane_->EpochToConfirm(), 2u);
  transport_.EndCalls(absl::UnavailableError("lost"));
  transport_.RunActions();
  EXPECT_TRUE(EntriesSent().empty()) << "its successor may have accepted other changes";
}

TEST_F(HandoverTest, FormerPrimaryTakesNoChanges) {
  Yield();
  absl::Status kept;
  plane_->KeepBest(2, 1, [&](absl::Status status) { kept = std::move(status); });
  AnswerPosition(/*log_index=*/1);
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(HandoverTest, NextTermEndsAHandover) {
  Yield();
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .backups = {0}, .since = 3}, {.primary = 1}}));
  EXPECT_FALSE(plane_->IsYielding());
  transport_.EndCalls(absl::UnavailableError("lost"));
  transport_.RunActions();
  EXPECT_TRUE(EntriesSent().empty());
}

TEST_F(HandoverTest, FormerPrimaryBecomesABackupWithItsData) {
  Yield();
  AnswerPosition(/*log_index=*/1);
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .backups = {0}, .since = 3}, {.primary = 1}}));
  ReplicateRequest question;
  *question.mutable_header() = HeaderOf(1, 3);
  question.add_asks_position(0);
  ASSERT_TRUE((*Send(Method::kReplicate, question))->ok());
  ReplicateResponse response;
  ASSERT_TRUE(response.ParseFromString(answered_));
  ASSERT_EQ(response.positions_size(), 1);
  EXPECT_EQ(response.positions(0).log_index(), 1u);
  EXPECT_EQ(response.positions(0).follows_since(), 3u);
}

TEST_F(HandoverTest, LearnerOfAFormerPrimaryGetsNothingMore) {
  BecomePrimaryWithLearner();
  plane_->AdoptRouting(Routing(
      3,
      {{.primary = kNoPrimary, .backups = {2}, .learners = {1}, .yielding = 0}, {.primary = 0}}));
  EXPECT_FALSE(plane_->IsYielding()) << "it has no backup";
}

TEST_F(HandoverTest, FormerPrimaryWaitsForNoServerThatTheRoutingDrops) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1, 2}}, {.primary = 1}}));
  Create().IgnoreError();
  plane_->AdoptRouting(Routing(
      2,
      {{.primary = kNoPrimary, .backups = {1}, .retained = {2}, .yielding = 0}, {.primary = 1}}));
  EXPECT_TRUE(plane_->IsYielding());
  HeldTransport::HeldCall to_backup = std::move(transport_.calls.front());
  ASSERT_EQ(to_backup.address, "1");
  transport_.calls.clear();
  ReplicateResponse response;
  response.add_positions()->set_log_index(1);
  response.mutable_positions(0)->set_follows_since(1);
  const auto bytes = std::make_shared<std::string>(response.SerializeAsString());
  to_backup.done(absl::OkStatus(), {ByteView(bytes->data(), bytes->size()), bytes});
  EXPECT_FALSE(plane_->IsYielding());
}

TEST_F(HandoverTest, BackupAcceptsTheChangesOfAYieldingPrimary) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  ASSERT_TRUE((*Send(Method::kReplicate, BestKept(1, 1, 1, 1)))->ok());
  plane_->AdoptRouting(HandsOver(/*from=*/1, /*to=*/0));
  // Sent before and after the primary has adopted the routing.
  EXPECT_TRUE((*Send(Method::kReplicate, BestKept(1, 1, 2, 2)))->ok());
  EXPECT_TRUE((*Send(Method::kReplicate, BestKept(1, 2, 3, 3, /*term=*/1)))->ok());
  EXPECT_FALSE((*Send(Method::kReplicate, BestKept(2, 2, 4, 4, /*term=*/1)))->ok())
      << "another server";
  plane_->AdoptRouting(Routing(3, {{.primary = 0, .backups = {1}, .since = 3}, {.primary = 1}}));
  EXPECT_FALSE((*Send(Method::kReplicate, BestKept(1, 2, 4, 4, /*term=*/1)))->ok());
}

}  // namespace
}  // namespace pawl
