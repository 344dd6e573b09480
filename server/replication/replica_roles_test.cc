// What a server hosts and does as its role changes from routing to routing.
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/retry.h"
#include "gtest/gtest.h"
#include "server/replication/change.h"
#include "server/replication/testing/replica_fixture.h"
#include "server/shard/table_schema.h"

namespace pawl {
namespace {

using ReplicaRolesTest = ReplicaTest;

// Adopting a routing may take long (it waits for replica locks) and must not block callers that
// only read the routing.
TEST_F(ReplicaRolesTest, RequestsUseThePreviousRoutingDuringAdoption) {
  log_ = std::make_unique<FakeDurableLog>();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  Create().IgnoreError();
  plane_->AdoptRouting(Routing(2, {{.primary = 0}, {.primary = 1, .backups = {0}, .since = 2}}));
  absl::Status stale;
  log_->on_drop = [&](uint32_t partition) {
    if (partition != 0) return;
    auto push =
        std::async(std::launch::async, [&] { return *Send(Method::kPush, EmptyPush(1, 2)); });
    ASSERT_EQ(push.wait_for(kTestPatience), std::future_status::ready)
        << "the request waits for the routing";
    stale = push.get().value();
  };
  plane_->AdoptRouting(
      Routing(3, {{.primary = 1, .since = 3}, {.primary = 1, .backups = {0}, .since = 2}}));
  EXPECT_TRUE(absl::IsFailedPrecondition(stale)) << stale;
  EXPECT_EQ(plane_->epoch(), 3u);
}

TEST_F(ReplicaRolesTest, RoutingOfAnEarlierIncarnationRemovesNothing) {
  Begin(/*incarnation=*/2);
  for (uint32_t p = 0; p < kPartitions; ++p) plane_->AddRecovered(EmptyPartition(p));
  plane_->AdoptRouting(Routing(5, {{.primary = 1, .since = 3}}, /*incarnation=*/1));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  EXPECT_FALSE(plane_->IsRouted());
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .since = 6}}, /*incarnation=*/2));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  EXPECT_TRUE(plane_->IsRouted());
}

TEST_F(ReplicaRolesTest, PromiseBindsAfterARestart) {
  Begin(/*incarnation=*/2);
  plane_->AddRecovered(EmptyPartition(0));
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .since = 6}}, /*incarnation=*/2));
  EXPECT_EQ(plane_->Served(), std::vector<uint32_t>{1}) << "no promise concerns a new replica";
  clock_.Advance(kLease);
  EXPECT_EQ(plane_->Served(), (std::vector<uint32_t>{0, 1}));
}

TEST_F(ReplicaRolesTest, SnapshotOfAnEarlierTermIsNotContinued) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  const std::string snapshot = SnapshotOf(*EmptyPartition(0));
  InstallSnapshotRequest piece = FirstPiece(1, 1, snapshot.substr(0, 10));
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, piece))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .learners = {0}, .since = 2}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .learners = {0}, .since = 3}}));
  piece.set_offset(10);
  piece.set_data(snapshot.substr(10));
  piece.set_crc32c(Crc32c(0, snapshot.data(), snapshot.size()));
  piece.set_last(true);
  piece.mutable_header()->set_epoch(3);
  const absl::Status status = **Send(Method::kInstallSnapshot, piece);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
}

// The change was in flight while another server was primary in between, so its index proves
// nothing.
TEST_F(ReplicaRolesTest, ChangeOfAnEarlierTermIsRefused) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .backups = {0}, .since = 2}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .backups = {0}, .since = 3}}));
  ReplicateRequest request = BestKept(1, 1, 1, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(**Send(Method::kReplicate, request)));
  request.mutable_header()->set_epoch(3);
  const absl::Status status = **Send(Method::kReplicate, request);
  EXPECT_TRUE(status.ok()) << status;
}

// A routing that drops the replica came late: its primary already had a newer one in which the
// replica learns again, and relied on it.
TEST_F(ReplicaRolesTest, LateRoutingDoesNotDropAcceptedChanges) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}, {.primary = 1}}));
  InstallSnapshotRequest snapshot = WholeSnapshot(1, 1, *EmptyPartition(0));
  snapshot.mutable_header()->set_epoch(5);
  const absl::Status status = **Send(Method::kInstallSnapshot, snapshot);
  ASSERT_TRUE(status.ok()) << status;
  plane_->AdoptRouting(Routing(3, {{.primary = 1}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), 1u);
  plane_->AdoptRouting(Routing(5, {{.primary = 1, .backups = {0}}, {.primary = 1}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), 1u);
  plane_->AdoptRouting(Routing(6, {{.primary = 1}}));
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
}

// Until then it may be told to follow another primary in between, or to drop its data.
TEST_F(ReplicaRolesTest, PositionIsAnsweredOnlyAfterAdoptingTheRouting) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}, {.primary = 1}}));
  ReplicateRequest question;
  *question.mutable_header() = HeaderOf(1, 5);
  question.add_asks_position(0);
  EXPECT_TRUE(absl::IsUnavailable(**Send(Method::kReplicate, question)));
  plane_->AdoptRouting(Routing(5, {{.primary = 1, .backups = {0}}, {.primary = 1}}));
  const absl::Status status = **Send(Method::kReplicate, question);
  EXPECT_TRUE(status.ok()) << status;
}

// By a routing that its primary has and this server lacks, it learns again. The primary relies on
// the position that it reports.
TEST_F(ReplicaRolesTest, SnapshotOfUndurableStateIsNotConfirmed) {
  log_ = std::make_unique<FakeDurableLog>();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  const auto change = Send(Method::kReplicate, BestKept(1, 1, 1, 1));
  auto primarys = EmptyPartition(0);
  primarys->KeepBest(1);
  const InstallSnapshotRequest snapshot = WholeSnapshot(1, 1, *primarys);
  const auto installed = Send(Method::kInstallSnapshot, snapshot);
  EXPECT_FALSE(change->has_value());
  EXPECT_FALSE(installed->has_value());
  plane_->OnDurable(0);
  ASSERT_TRUE(change->has_value() && installed->has_value());
  EXPECT_TRUE((*installed)->ok()) << **installed;
}

// The threads that bring the calls are few: a slow disk must not hold them.
TEST_F(ReplicaRolesTest, ChangesAreAcceptedWhileASnapshotIsStored) {
  log_ = std::make_unique<FakeDurableLog>();
  log_->holds_stores = true;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  const auto installed =
      Send(Method::kInstallSnapshot, WholeSnapshot(1, 1, *PartitionAfter(/*changes=*/1)));
  EXPECT_FALSE(installed->has_value());
  ASSERT_EQ(log_->stores.size(), 1u);
  ReplicateRequest change = BestKept(1, 1, 1, 1);
  change.mutable_entries(0)->set_partition(1);
  const auto accepted = Send(Method::kReplicate, change);
  plane_->OnDurable(1);
  ASSERT_TRUE(accepted->has_value());
  EXPECT_TRUE((*accepted)->ok()) << **accepted;
  log_->stores.front()(nullptr);
  plane_->OnDurable(0);
  ASSERT_TRUE(installed->has_value());
  EXPECT_TRUE((*installed)->ok()) << **installed;
  EXPECT_EQ(log_->replaced(), std::vector<uint32_t>{0});
}

// After another error the primary would send the whole snapshot again.
TEST_F(ReplicaRolesTest, LastPieceIsRetriedWhenTooManyCallsWait) {
  options_.max_waiting_calls = 1;
  log_ = std::make_unique<FakeDurableLog>();
  log_->durable = 0;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .backups = {0}}}));
  const auto waits = Send(Method::kReplicate, BestKept(1, 1, 1, 1));
  EXPECT_FALSE(waits->has_value());
  auto primarys = EmptyPartition(0);
  ASSERT_TRUE(primarys->SetTerm(1).ok());
  for (const uint64_t step : {1, 2}) primarys->KeepBest(step);
  const InstallSnapshotRequest snapshot = WholeSnapshot(1, 1, *primarys);
  EXPECT_TRUE(absl::IsUnavailable(**Send(Method::kInstallSnapshot, snapshot)));
  EXPECT_TRUE(absl::IsUnavailable(**Send(Method::kInstallSnapshot, snapshot)));
  EXPECT_EQ(log_->replaced().size(), 1u);
  log_->durable = 2;
  plane_->OnDurable(0);
  const absl::Status status = **Send(Method::kInstallSnapshot, snapshot);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ReplicaRolesTest, PartialSnapshotIsDiscardedWithItsPrimary) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  const std::string snapshot = SnapshotOf(*EmptyPartition(0));
  const InstallSnapshotRequest first = FirstPiece(1, 1, snapshot.substr(0, 10));
  InstallSnapshotRequest second = first;
  second.set_offset(10);
  second.set_data(snapshot.substr(10, 10));
  InstallSnapshotRequest third = first;
  third.set_offset(20);
  third.set_data(snapshot.substr(20, 10));
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  clock_.Advance(kSnapshotPieceTimeout / 2);
  plane_->Tick();
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, second))->ok());
  clock_.Advance(kSnapshotPieceTimeout);
  plane_->Tick();
  EXPECT_TRUE(absl::IsOutOfRange(**Send(Method::kInstallSnapshot, third)));

  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  plane_->AdoptRouting(Routing(2, {{.primary = 2, .learners = {0}, .since = 2}}));
  plane_->Tick();
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .learners = {0}, .since = 3}}));
  second.mutable_header()->set_epoch(3);
  EXPECT_TRUE(absl::IsOutOfRange(**Send(Method::kInstallSnapshot, second)));
}

TEST_F(ReplicaRolesTest, ArrivingSnapshotsShareABudget) {
  options_.max_partial_snapshot_bytes = 15;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  const std::string snapshot = SnapshotOf(*EmptyPartition(0));
  const InstallSnapshotRequest first = FirstPiece(1, 1, snapshot.substr(0, 10));
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  InstallSnapshotRequest other = first;
  other.set_partition(1);
  const absl::Status refusal = **Send(Method::kInstallSnapshot, other);
  EXPECT_TRUE(absl::IsResourceExhausted(refusal) && IsTransientError(refusal))
      << refusal << ": its primary must not take it for a full disk";
  // A single snapshot may be of any size.
  InstallSnapshotRequest second = first;
  second.set_offset(10);
  second.set_data(snapshot.substr(10, 10));
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, second))->ok());
  // A piece whose answer was lost is sent again.
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, second))->ok());
  // A restarted snapshot is not counted twice.
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
}

// Its sender may have given up, and others may send snapshots meanwhile.
TEST_F(ReplicaRolesTest, SnapshotCountsWhileItIsStored) {
  log_ = std::make_unique<FakeDurableLog>();
  log_->holds_stores = true;
  const InstallSnapshotRequest whole = WholeSnapshot(1, 1, *PartitionAfter(/*changes=*/1));
  options_.max_partial_snapshot_bytes = 2 * whole.data().size();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  const auto installed = Send(Method::kInstallSnapshot, whole);
  const absl::Status second = **Send(Method::kInstallSnapshot, whole);
  EXPECT_TRUE(absl::IsUnavailable(second)) << second << ": one store at a time";
  EXPECT_EQ(log_->stores.size(), 1u);
  clock_.Advance(kSnapshotPieceTimeout);
  plane_->Tick();
  InstallSnapshotRequest other = FirstPiece(1, 1, std::string(whole.data().size() + 1, '\0'));
  other.set_partition(1);
  const absl::Status refusal = **Send(Method::kInstallSnapshot, other);
  EXPECT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
  log_->stores.front()(nullptr);
  EXPECT_TRUE(installed->has_value());
  const absl::Status now = **Send(Method::kInstallSnapshot, other);
  EXPECT_FALSE(absl::IsResourceExhausted(now)) << now;
}

// The routing may come from a peer.
TEST_F(ReplicaRolesTest, RoutingWithUnlistedServersIsNotAdopted) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .backups = {3}}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 0, .learners = {3}}}));
  plane_->AdoptRouting(Routing(4, {{.primary = 3}}));
  EXPECT_EQ(plane_->epoch(), 1u);
  plane_->AdoptRouting(Routing(5, {{.primary = 0, .backups = {2}}}));
  EXPECT_EQ(plane_->epoch(), 5u);
}

// All servers with the partition are gone, and it had no change: it started again here, where none
// of its data had arrived.
TEST_F(ReplicaRolesTest, LearnerWithoutDataBecomesPrimaryOfNewPartition) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  ASSERT_TRUE(plane_->ReplicasWithData().empty());
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .since = 2, .created_epoch = 2}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  const absl::Status created = Create();
  EXPECT_TRUE(created.ok()) << created;
  const auto pushed = Send(Method::kPush, EmptyPush(0, 2));
  ASSERT_TRUE(pushed->has_value());
  EXPECT_TRUE((*pushed)->ok()) << **pushed;
}

// Other servers may have what was acknowledged.
TEST_F(ReplicaRolesTest, LearnerWithoutDataServesNothingAsPrimary) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .since = 2, .created_epoch = 1}}));
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
  EXPECT_TRUE(plane_->Served().empty());
}

// It may take all the memory that arriving snapshots have.
TEST_F(ReplicaRolesTest, SnapshotIsLoadedWhileItsPiecesArrive) {
  const TableSpec spec = WithSgd(DenseTableSpec("blocks", {16 * kBlockElements}, kTable));
  auto table = TableSchema::Create(spec, TheJob().seed());
  ASSERT_TRUE(table.ok()) << table.status();
  uint64_t block = 0;
  while (PartitionOf(kTable, block, kPartitions) != 0) ++block;
  const std::string values(kBlockElements * sizeof(float), '\0');
  auto primarys = EmptyPartition(0);
  ASSERT_TRUE(primarys->CreateTable(*table).ok());
  const auto pushed = primarys->Push(
      SenderOf(EmptyPush(0, 1).header()), 0, kTable,
      {ByteView(&block, sizeof(block)), ByteView(values.data(), values.size()), nullptr, 0});
  ASSERT_TRUE(pushed.ok()) << pushed.status();

  const std::string snapshot = SnapshotOf(*primarys);
  log_ = std::make_unique<FakeDurableLog>();
  options_.max_partial_snapshot_bytes = snapshot.size();
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1, .learners = {0}}}));
  InstallSnapshotRequest first = FirstPiece(1, 1, snapshot.substr(0, snapshot.size() / 2));
  first.set_log_index(primarys->log_index());
  InstallSnapshotRequest last = WholeSnapshot(1, 1, *primarys);
  last.set_offset(snapshot.size() / 2);
  last.set_data(snapshot.substr(snapshot.size() / 2));
  InstallSnapshotRequest other = FirstPiece(1, 1, "0123456789");
  other.set_partition(1);
  int saved = 0;
  log_->on_store = [&](HeldSnapshot held) {
    ++saved;
    EXPECT_EQ(held.Fingerprint(), Fingerprint(*primarys));
    EXPECT_TRUE(absl::IsResourceExhausted(**Send(Method::kInstallSnapshot, other)));
  };
  ASSERT_TRUE((*Send(Method::kInstallSnapshot, first))->ok());
  const absl::Status status = **Send(Method::kInstallSnapshot, last);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(saved, 1);
  EXPECT_TRUE((*Send(Method::kInstallSnapshot, other))->ok());
}

// It was in sync by routing 1, which has not reached it, and nothing was acknowledged.
TEST_F(ReplicaRolesTest, RetainedServerThatMissedTheFirstRoutingBecomesPrimary) {
  Begin();
  plane_->AdoptRouting(
      Routing(5, {{.primary = 1, .retained = {0}, .confirm_since = 4},
                  {.primary = 1, .learners = {0}, .learners_since = 5, .retained = {0}}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), kPartitions);
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .since = 6}}));
  clock_.Advance(kLease);
  EXPECT_EQ(plane_->Served().size(), kPartitions);
}

TEST_F(ReplicaRolesTest, RetainedServerThatKnowsOfTheCreationMakesNoReplica) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 1}}));
  plane_->AdoptRouting(Routing(5, {{.primary = 1, .retained = {0}}}));
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
}

TEST_F(ReplicaRolesTest, RetainedReplicaStaysUntilTheRoutingReleasesIt) {
  log_ = std::make_unique<FakeDurableLog>();
  std::vector<uint32_t> dropped;
  log_->on_drop = [&](uint32_t partition) { dropped.push_back(partition); };
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}, {.primary = 1, .backups = {0}}}));
  EXPECT_FALSE(plane_->IsDrained());
  plane_->AdoptRouting(
      Routing(2, {{.primary = 1, .since = 2, .retained = {0}, .confirm_since = 2}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), 2u);
  EXPECT_TRUE(plane_->Served().empty());
  EXPECT_FALSE(plane_->IsDrained()) << "it may be needed: server-1 has not confirmed";
  plane_->Tick();
  EXPECT_EQ(Heartbeat().server().retained_replicas(), 2u);
  plane_->AdoptRouting(Routing(3, {{.primary = 1, .since = 2, .retained = {0}}}));
  EXPECT_EQ(plane_->ReplicasWithData().size(), 2u);
  EXPECT_TRUE(plane_->IsDrained()) << "it may end, and its files stay";
  EXPECT_TRUE(dropped.empty());
  plane_->AdoptRouting(Routing(4, {{.primary = 1, .since = 2}}));
  EXPECT_TRUE(plane_->ReplicasWithData().empty());
  EXPECT_EQ(dropped, (std::vector<uint32_t>{0, 1}));
}

TEST_F(ReplicaRolesTest, RetainedReplicaKeepsItsDataAsPrimary) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  plane_->AdoptRouting(
      Routing(2, {{.primary = 1, .since = 2, .retained = {0}, .confirm_since = 2}}));
  plane_->AdoptRouting(Routing(3, {{.primary = 0, .since = 3}}));
  EXPECT_EQ(plane_->Served(), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(plane_->ReplicasWithData()[0].log_index(), 1u);
}

TEST_F(ReplicaRolesTest, LearnerRetainsItsFilesUntilItsSnapshotArrives) {
  log_ = std::make_unique<FakeDurableLog>();
  log_->on_drop = [](uint32_t partition) {
    ADD_FAILURE() << "partition " << partition << " is deleted";
  };
  int saved = 0;
  log_->on_store = [&](HeldSnapshot) { ++saved; };
  Begin();
  auto former = EmptyPartition(0);
  former->KeepBest(1);
  plane_->AddRecovered(std::move(former));
  plane_->AdoptRouting(Routing(
      3, {{.primary = 1, .learners = {0}, .since = 2, .learners_since = 3}, {.primary = 1}}));
  ASSERT_EQ(plane_->ReplicasWithData().size(), 1u);
  EXPECT_EQ(plane_->ReplicasWithData()[0].log_index(), 1u);
  EXPECT_TRUE(plane_->Hold(0).has_value()) << "the log may be compacted meanwhile";
  auto primarys = EmptyPartition(0);
  for (uint64_t step = 1; step <= 3; ++step) primarys->KeepBest(step);
  InstallSnapshotRequest snapshot = WholeSnapshot(1, 2, *primarys);
  snapshot.mutable_header()->set_epoch(3);
  const absl::Status installed = **Send(Method::kInstallSnapshot, snapshot);
  EXPECT_TRUE(installed.ok()) << installed;
  EXPECT_EQ(saved, 1);
  EXPECT_EQ(plane_->ReplicasWithData()[0].log_index(), 3u);
}

TEST_F(ReplicaRolesTest, LearnerPromotedBeforeItsSnapshotKeepsItsData) {
  Begin();
  auto former = EmptyPartition(0);
  former->KeepBest(1);
  plane_->AddRecovered(std::move(former));
  plane_->AdoptRouting(Routing(
      3, {{.primary = 1, .learners = {0}, .since = 2, .learners_since = 3}, {.primary = 1}}));
  plane_->AdoptRouting(
      Routing(4, {{.primary = 0, .since = 4, .created_epoch = 1}, {.primary = 1}}));
  clock_.Advance(kLease);
  EXPECT_EQ(plane_->Served(), std::vector<uint32_t>{0});
  EXPECT_EQ(plane_->ReplicasWithData()[0].log_index(), 1u);
}

TEST_F(ReplicaRolesTest, PrimaryWaitsForConfirmedRouting) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0}}));
  ASSERT_TRUE(Create().ok());
  EXPECT_EQ(plane_->EpochToConfirm(), 0u);
  plane_->AdoptRouting(Routing(5, {{.primary = 0, .confirm_since = 4}, {.primary = 0}}));
  EXPECT_EQ(plane_->EpochToConfirm(), 5u);
  const auto waits = Send(Method::kPush, EmptyPush(0, 5));
  EXPECT_FALSE(waits->has_value());
  const auto other = Send(Method::kPush, EmptyPush(1, 5));
  ASSERT_TRUE(other->has_value());
  EXPECT_TRUE((*other)->ok()) << **other;
  plane_->OnConfirmed(3);
  EXPECT_FALSE(waits->has_value()) << "that was an earlier routing";
  plane_->OnConfirmed(5);
  ASSERT_TRUE(waits->has_value());
  EXPECT_TRUE((*waits)->ok()) << **waits;
  EXPECT_EQ(plane_->EpochToConfirm(), 0u);
  plane_->AdoptRouting(Routing(6, {{.primary = 0, .confirm_since = 4}, {.primary = 0}}));
  EXPECT_EQ(plane_->EpochToConfirm(), 0u) << "it is confirmed already";
  // A confirmation of this incarnation says nothing about the next one.
  Begin(/*incarnation=*/2);
  plane_->AdoptRouting(
      Routing(7, {{.primary = 0, .confirm_since = 4}, {.primary = 0}}, /*incarnation=*/2));
  EXPECT_EQ(plane_->EpochToConfirm(), 7u);
}

TEST_F(ReplicaRolesTest, UnconfirmedLossOfAFollowerDelaysPushes) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  auto done = std::make_shared<bool>(false);
  plane_->KeepBest(1, 1, [done](const absl::Status&) { *done = true; });
  plane_->AdoptRouting(Routing(2, {{.primary = 0, .confirm_since = 2}}));
  EXPECT_FALSE(*done);
  plane_->OnConfirmed(2);
  EXPECT_TRUE(*done);
}

TEST_F(ReplicaRolesTest, NothingIsAcknowledgedWhileTooFewAreInSync) {
  min_in_sync_ = 2;
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}}}));
  auto done = std::make_shared<int>(0);
  const auto keep = [&](uint64_t step) {
    plane_->KeepBest(1, step, [done](const absl::Status&) { ++*done; });
  };
  keep(1);
  ReplicateResponse response;
  for (uint32_t partition = 0; partition < kPartitions; ++partition) {
    ReplicaPosition& position = *response.add_positions();
    position.set_partition(partition);
    position.set_log_index(1);
    position.set_follows_since(1);
  }
  transport_.EndCalls(absl::OkStatus(), response.SerializeAsString());
  EXPECT_EQ(*done, 1);
  plane_->AdoptRouting(Routing(2, {{.primary = 0}}));
  keep(2);
  EXPECT_EQ(*done, 1) << "this server alone has it";
}

TEST_F(ReplicaRolesTest, NothingIsSentAfterClose) {
  Begin();
  plane_->AdoptRouting(Routing(1, {{.primary = 0, .backups = {1}, .learners = {2}}}));
  AnswerEmptyPositions();
  Create().IgnoreError();
  ASSERT_GT(transport_.CallsOf(Method::kReplicate), 0u);
  ASSERT_GT(transport_.CallsOf(Method::kInstallSnapshot), 0u);
  plane_->Close(absl::UnavailableError("the end"));
  transport_.EndCalls(absl::CancelledError("the transport is shut down"));
  transport_.RunActions();
  EXPECT_TRUE(transport_.calls.empty());
  EXPECT_TRUE(transport_.actions.empty());
}

}  // namespace
}  // namespace pawl
