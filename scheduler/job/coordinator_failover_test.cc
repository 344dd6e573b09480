// Servers and workers that die, return and leave.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FailoverTest : public CoordinatorFixture {
 protected:
  void Run(uint32_t servers, const std::string& job,
           const std::function<void(Coordinator::Options&)>& change = nullptr) {
    Begin(job, servers, 1, change);
    JoinAll(servers);
  }
};

TEST_F(FailoverTest, BackupsTakeOverAndRedundancyIsRepaired) {
  Run(3, TrainingJob(6, 2, "durability: MEMORY"));
  EXPECT_EQ(SetsText(),
            "server-0 server-1 | server-1 server-2 | server-2 server-0 | server-0 server-2 | "
            "server-1 server-0 | "
            "server-2 server-1");
  for (FakeNode& node : nodes_) node.feeds = false;
  Kill("server-0");
  Pass(milliseconds(1000));
  EXPECT_EQ(Routing().epoch(), 1u);
  Pass(milliseconds(100));
  EXPECT_EQ(SetsText(),
            "server-1 (server-2) | server-1 server-2 | server-2 (server-1) | server-2 (server-1) | "
            "server-1 (server-2) | server-2 server-1");
  const std::vector<Replicas> sets = Sets();
  EXPECT_EQ(sets[0].primary_since, 2u);
  EXPECT_EQ(sets[1].primary_since, 1u) << "a partition keeps its primary";
  EXPECT_EQ(sets[2].primary_since, 1u);
  for (FakeNode& node : nodes_) node.feeds = true;
  Pass(milliseconds(500));
  EXPECT_EQ(SetsText(),
            "server-1 server-2 | server-1 server-2 | server-2 server-1 | server-2 server-1 | "
            "server-1 server-2 | "
            "server-2 server-1");
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, FailoverAnswersAllRoutingCallsAtOnce) {
  Run(2, TrainingJob(2, 2));
  Kill("server-1");
  const auto waiting = GetRouting(1);
  Pass(milliseconds(1000));
  EXPECT_FALSE(waiting->has_value());
  clock_.Advance(kTickInterval);
  coordinator_->Tick();
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ((**waiting)->epoch(), 2u);
}

TEST_F(FailoverTest, ServerWithDamagedDataReturnsOnlyIfOthersHaveIt) {
  Run(2, TrainingJob(2, 2));
  ASSERT_TRUE((*CreateTable("w"))->ok());
  for (FakeNode& node : nodes_) node.feeds = false;
  for (const char* server : {"server-0", "server-1"}) Kill(server);
  RegisterRequest damaged = Return("server-0", 1000);
  damaged.set_data_damaged(true);
  const auto expect_refused = [&] {
    const auto refused = Register(damaged);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
    for (const char* words : {"server-0 is damaged", "partitions 0, 1", "waiting for server-1"}) {
      EXPECT_TRUE(absl::StrContains(refused.status().message(), words)) << refused.status();
    }
  };
  expect_refused();
  Pass(milliseconds(700));
  // The scheduler does not know yet that server-1 is dead, but does not hear it either.
  expect_refused();
  Pass(milliseconds(800));
  expect_refused();
  ASSERT_TRUE(ComeBack("server-1", {0, 1}).ok());
  Pass(milliseconds(300));
  const auto admitted = Register(damaged);
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(admitted->node(), "server-0");
  EXPECT_EQ(Status().state(), RUNNING) << Status().failure();
}

TEST_F(FailoverTest, LossNamesTheDamageOfAServerThatHasReturned) {
  Run(2, TrainingJob(2, 2));
  ASSERT_TRUE((*CreateTable("w"))->ok());
  for (const char* server : {"server-0", "server-1"}) Kill(server);
  Pass(milliseconds(1500));
  RegisterRequest damaged = Return("server-0", 1000);
  damaged.set_data_damaged(true);
  EXPECT_FALSE(Register(damaged).ok());
  Pass(seconds(61));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_TRUE(absl::StrContains(Status().failure(), "its data directory is damaged"))
      << Status().failure();
}

TEST_F(FailoverTest, RestartedServerBecomesALearner) {
  Run(2, TrainingJob(2, 2));
  nodes_[1].feeds = false;
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  EXPECT_EQ(SetsText(), "server-1 | server-1") << "no lease was waited for, and its data is old";
  Pass(milliseconds(100));
  EXPECT_EQ(SetsText(), "server-1 (server-0) | server-1 (server-0)");
  nodes_[1].feeds = true;
  Pass(milliseconds(200));
  EXPECT_EQ(SetsText(), "server-1 server-0 | server-1 server-0");
}

TEST_F(FailoverTest, ReconnectedServerLearnsBeforeItIsABackup) {
  Run(2, TrainingJob(2, 2));
  Kill("server-0");
  Pass(milliseconds(1200));
  FakeNode& old = NodeNamed("server-0");
  EXPECT_TRUE(absl::IsAborted(Beat(old.registration).status()));
  const std::vector<uint32_t> in_memory = InSyncAt("server-0");
  EXPECT_EQ(in_memory.size(), 2u);
  std::set<std::string> seen;
  each_tick_ = [&] { seen.insert(ReplicasText(Sets()[0])); };
  ASSERT_TRUE(ComeBack("server-0", in_memory).ok());
  Pass(seconds(1));
  EXPECT_EQ(seen, (std::set<std::string>{"server-1 (server-0)", "server-1 server-0"}));
}

TEST_F(FailoverTest, LearnerIsNeverPrimary) {
  Run(2, TrainingJob(2, 2));
  nodes_[1].feeds = false;
  ASSERT_TRUE(ComeBack("server-0").ok());
  Pass(milliseconds(200));
  ASSERT_EQ(SetsText(), "server-1 (server-0) | server-1 (server-0)");
  Kill("server-1");
  Pass(milliseconds(1200));
  EXPECT_EQ(SetsText(), "- | -");
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(ComeBack("server-1", {0, 1}).ok());
  EXPECT_EQ(SetsText(), "server-1 | server-1");
  Pass(milliseconds(500));
  EXPECT_EQ(SetsText(), "server-1 server-0 | server-0 server-1");
}

TEST_F(FailoverTest, OnlyTheLastInSyncReplicaRecoversAPartition) {
  Run(2, TrainingJob(2, 2));
  Kill("server-0");
  Pass(milliseconds(1200));
  Kill("server-1");
  Pass(milliseconds(1200));
  EXPECT_EQ(SetsText(), "- | -");
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  Pass(milliseconds(500));
  EXPECT_EQ(SetsText(), "- | -") << "server-0 has missed what server-1 acknowledged alone";
  ASSERT_TRUE(ComeBack("server-1", {0, 1}).ok());
  Pass(milliseconds(500));
  EXPECT_EQ(SetsText(), "server-1 server-0 | server-1 server-0");
}

TEST_F(FailoverTest, FirstToReturnAfterACommonDeathIsPrimary) {
  Run(3, TrainingJob(3, 3));
  for (const char* server : {"server-0", "server-1", "server-2"}) Kill(server);
  Pass(milliseconds(1200));
  EXPECT_EQ(SetsText(), "- | - | -");
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(ComeBack("server-2", {0, 1, 2}).ok());
  EXPECT_EQ(SetsText(), "server-2 | server-2 | server-2");
  ASSERT_TRUE(ComeBack("server-0", {0, 1, 2}).ok());
  for (const Replicas& set : Sets()) EXPECT_FALSE(set.InSync("server-0"));
  ASSERT_TRUE(ComeBack("server-1", {0, 1, 2}).ok());
  Pass(seconds(1));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 3u);
}

TEST_F(FailoverTest, ThreeReplicasSurviveTwoDeaths) {
  Run(3, TrainingJob(6, 3, "durability: MEMORY"));
  Kill("server-0");
  Pass(milliseconds(1200));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u);
  Kill("server-1");
  Pass(milliseconds(1200));
  for (const Replicas& set : Sets()) EXPECT_EQ(ReplicasText(set), "server-2");
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, BackupThatFallsBehindIsReplaced) {
  Run(4, TrainingJob(4, 3));
  for (FakeNode& node : nodes_) node.feeds = false;
  Kill("server-0");
  Pass(milliseconds(1200));
  for (const Replicas& set : Sets()) {
    EXPECT_EQ(set.in_sync() + set.learners.size(), 3u);
    EXPECT_FALSE(set.Has("server-0"));
  }
  // Only the primary reports on its learners.
  Kill("server-1");
  Pass(milliseconds(1200));
  for (const Replicas& set : Sets()) {
    EXPECT_GE(set.in_sync(), 1u);
    EXPECT_FALSE(set.primary.empty());
  }
  for (FakeNode& node : nodes_) node.feeds = true;
  Pass(seconds(1));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u) << "two servers are left";
}

TEST_F(FailoverTest, MissingLastReplicaFailsTheJob) {
  Run(2, TrainingJob(4, 1));
  Kill("server-1");
  Pass(milliseconds(1100));
  EXPECT_EQ(SetsText(), "server-0 | - | server-0 | -");
  Pass(milliseconds(59950));
  EXPECT_EQ(Status().state(), RUNNING);
  Pass(milliseconds(100));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().failure(),
            "server-1 (host pid 2, s:2) died: no heartbeat for 1.1 s; partitions 1, 3 are nowhere "
            "else, and none of those has come back within 60.0 s");
}

TEST_F(FailoverTest, LastReplicaWithoutDataFailsTheJob) {
  Run(2, TrainingJob(4, 1));
  ASSERT_TRUE((*CreateTable("w"))->ok());
  ASSERT_TRUE(ComeBack("server-1", {1}).ok());
  EXPECT_EQ(Status().failure(),
            "server-1 (host pid 2, s:2) was restarted; partition 3 is nowhere else, and it has "
            "come back without them");
}

TEST_F(FailoverTest, LostPartitionStartsEmptyBeforeTheFirstTable) {
  Run(2, TrainingJob(4, 1));
  ASSERT_TRUE(ComeBack("server-1", {1}).ok());
  EXPECT_EQ(SetsText(), "server-0 | server-1 | server-0 | server-1");
  const RoutingTable routing = Routing();
  EXPECT_EQ(routing.replicas(1).created_epoch(), 1u) << "it has that";
  EXPECT_EQ(routing.replicas(3).created_epoch(), routing.replicas(3).primary_since());
  EXPECT_EQ(routing.replicas(3).created_epoch(), routing.epoch());
  EXPECT_TRUE((*CreateTable("w"))->ok());
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, MemoryServerIsReplacedBeforeTheFirstTable) {
  Run(2, TrainingJob(2, 2, "durability: MEMORY"));
  Kill("server-0");
  Kill("server-1");
  Pass(milliseconds(1100));
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(SetsText(), "- | -");
  Join(SERVER_ROLE);
  Join(SERVER_ROLE);
  Pass(seconds(1));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u) << SetsText();
  EXPECT_TRUE((*CreateTable("w"))->ok());
}

TEST_F(FailoverTest, ReplicasArePlacedAfterAServersFirstHeartbeat) {
  BeginWithStore(TrainingJob(2, 1), 2, 1);
  Join(SERVER_ROLE);
  const auto second = Register(Registration(SERVER_ROLE, ++nonce_));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(GetRouting()->has_value())
      << "it may die before, and its successor would have another name";
  ASSERT_TRUE(Beat(*second).ok());
  Save();
  EXPECT_TRUE(GetRouting()->has_value());
}

TEST_F(FailoverTest, ServerThatAdoptsNoRoutingIsTreatedAsGone) {
  Run(2, TrainingJob(2, 2));
  FakeNode& stuck = NodeNamed("server-0");
  stuck.draining = true;
  stuck.adopts = false;
  stuck.may_be_disowned = true;
  Pass(seconds(2));
  ASSERT_EQ(Sets()[0].primary, "") << "it was told to hand over, and may not know: " << SetsText();
  Pass(seconds(25));
  EXPECT_EQ(Sets()[0].primary, "");
  Pass(seconds(5));
  EXPECT_TRUE(stuck.silent) << "its lease is no longer renewed";
  Pass(milliseconds(1100));
  EXPECT_EQ(Sets()[0].primary, "server-1") << SetsText();
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, UnreachableMemoryServerIsWaitedFor) {
  Run(2, TrainingJob(2, 2, "durability: MEMORY"));
  ASSERT_TRUE((*CreateTable("w"))->ok());
  Kill("server-0");
  Kill("server-1");
  Pass(seconds(60));
  EXPECT_EQ(Status().state(), RUNNING);
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(
      Status().failure(),
      "server-0 (host pid 1, s:1) died: no heartbeat for 1.1 s; server-1 (host pid 2, s:2) died: "
      "no heartbeat for 1.1 s; partitions 0, 1 are nowhere else, and none of those has come back "
      "within 60.0 s");
}

TEST_F(FailoverTest, ReplacementTakesThePlaceOfAnAbsentServer) {
  Run(2, TrainingJob(4, 2));
  Kill("server-0");
  Pass(milliseconds(1200));
  const RegisterResponse replacement = Join(SERVER_ROLE);
  EXPECT_EQ(replacement.node(), "server-2");
  Pass(seconds(1));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u);
  size_t primaries = 0;
  for (const Replicas& set : Sets()) primaries += set.primary == "server-2";
  EXPECT_LE(primaries, 2u);
}

// Draining --------------------------------------------------------------------

TEST_F(FailoverTest, DrainedServerLeavesWithoutLossOfRedundancy) {
  Run(3, TrainingJob(12, 2));
  NodeNamed("server-1").draining = true;
  each_tick_ = [&] {
    for (const Replicas& set : Sets())
      EXPECT_GE(set.in_sync(), set.primary.empty() ? 1u : 2u) << ReplicasText(set);
  };
  Pass(seconds(5));
  EXPECT_TRUE(NodeNamed("server-1").silent) << "it could not leave";
  for (const Replicas& set : Sets()) {
    EXPECT_FALSE(set.primary.empty());
    EXPECT_EQ(set.in_sync(), 2u);
  }
  EXPECT_EQ(Routing().servers_size(), 2);
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, NothingIsPlacedOnADrainingServer) {
  Begin(TrainingJob(4, 2), 2, 1);
  Join(SERVER_ROLE);
  NodeNamed("server-0").draining = true;
  Pass(milliseconds(200));
  Join(SERVER_ROLE);
  Pass(milliseconds(500));
  EXPECT_EQ(Status().state(), STARTING);
  EXPECT_EQ(Status().routing_epoch(), 0u);
  Join(SERVER_ROLE);
  Join(WORKER_ROLE);
  Pass(milliseconds(500));
  EXPECT_EQ(Status().state(), RUNNING);
  for (const Replicas& set : Sets()) EXPECT_FALSE(set.Has("server-0")) << ReplicasText(set);
}

TEST_F(FailoverTest, DrainedServerHandsOverItsOnlyReplicas) {
  Run(2, TrainingJob(20, 1, "durability: MEMORY"));
  NodeNamed("server-0").draining = true;
  Pass(seconds(5));
  EXPECT_TRUE(NodeNamed("server-0").silent);
  for (const Replicas& set : Sets()) EXPECT_EQ(ReplicasText(set), "server-1");
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, HandoverWaitsForTheFormerPrimary) {
  Run(2, TrainingJob(1, 1));
  FakeNode& former = NodeNamed("server-0");
  former.draining = true;
  while (former.routing.epoch() < 2) Pass(kTickInterval);
  ASSERT_EQ(SetsText(), "server-0 (server-1)");
  former.adopts = false;
  Pass(milliseconds(500));
  EXPECT_EQ(SetsText(), "- server-1") << "server-0 may still serve";
  former.adopts = true;
  Pass(milliseconds(200));
  EXPECT_EQ(SetsText(), "server-1");
}

TEST_F(FailoverTest, DeadDrainingServerIsNotNeededForInSyncPartitions) {
  Run(3, TrainingJob(12, 2, "durability: MEMORY"));
  NodeNamed("server-1").draining = true;
  Pass(milliseconds(200));
  Kill("server-1");
  Pass(seconds(3));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u);
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, AllDrainingServersKeepTheirReplicas) {
  Run(2, TrainingJob(2, 2));
  for (const char* server : {"server-0", "server-1"}) NodeNamed(server).draining = true;
  Pass(seconds(2));
  EXPECT_EQ(SetsText(), "server-0 server-1 | server-1 server-0");
}

// Calls to servers -----------------------------------------------------------

TEST_F(FailoverTest, CallsCarryTheRoutingEpoch) {
  Run(2, TrainingJob(
             1, 2,
             "consistency { mode: BOUNDED staleness: 2 } evaluation { early_stopping { patience: 1 "
             "} }"));
  ASSERT_TRUE(ComeBack("server-0").ok());
  Pass(seconds(1));
  const std::string address = NodeNamed("server-1").request.address();
  servers_.TakeCalls();
  // The epoch of the last change of primaries; the routing has changed since.
  const uint64_t epoch = Sets()[0].primary_since;
  ASSERT_GT(epoch, 1u);
  const auto asked_when_adopted = [&](const std::vector<std::string>& calls,
                                      const std::function<void()>& cause) {
    servers_.SetAdopted(address, epoch - 1);
    cause();
    Pass(milliseconds(1500));
    EXPECT_EQ(servers_.TakeCalls(), std::vector<std::string>()) << calls[0];
    EXPECT_EQ(servers_.last_routing_epoch(), epoch) << calls[0];
    servers_.SetAdopted(address, epoch);
    Pass(milliseconds(100));
    std::vector<std::string> expected;
    for (const std::string& call : calls) expected.push_back(absl::StrCat(address, " ", call));
    EXPECT_EQ(servers_.TakeCalls(), expected);
    EXPECT_EQ(servers_.last_routing_epoch(), epoch);
  };
  asked_when_adopted({"CreateTable"}, [&] { CreateTable("t"); });
  asked_when_adopted({"KeepBest 10"}, [&] { ReportAll(worker_, 1, true); });
  EXPECT_EQ(Status().evaluations_size(), 1);
  std::vector<std::string> releases;
  for (int rank = 0; rank < 4; ++rank) {
    releases.push_back(absl::StrCat("ReleaseLogicalWorker ", rank, " ", worker_.incarnation()));
  }
  asked_when_adopted(releases, [&] { Kill("worker-0"); });
  const absl::StatusOr<RegisterResponse> successor = ComeBack("worker-0");
  ASSERT_TRUE(successor.ok());
  asked_when_adopted({"RestoreBest", "Inspect"}, [&] { ASSERT_TRUE(Finish(*successor).ok()); });
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(FailoverTest, ResultComesFromServersWithTheRouting) {
  Run(1, TrainingJob(1, 1));
  servers_.SetAdopted("s:1", 0);
  ASSERT_TRUE(Finish(worker_).ok());
  Pass(milliseconds(200));
  EXPECT_EQ(Status().state(), FINISHING);
  EXPECT_EQ(servers_.last_routing_epoch(), 1u);
  servers_.SetAdopted("s:1", 1);
  Pass(milliseconds(100));
  EXPECT_EQ(servers_.TakeCalls(), std::vector<std::string>{"s:1 Inspect"});
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(FailoverTest, RoundRestartsWithTheNewPrimaries) {
  Run(2, TrainingJob(2, 2));
  servers_.Hold();
  const auto table = CreateTable("t");
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 CreateTable", "s:2 CreateTable"}));
  Kill("server-0");
  Pass(milliseconds(1200));
  EXPECT_EQ(servers_.TakeCalls(), std::vector<std::string>{"s:2 CreateTable"});
  EXPECT_EQ(servers_.last_routing_epoch(), 2u);
  EXPECT_FALSE(table->has_value());
  servers_.Release();
  ASSERT_TRUE(table->has_value());
  EXPECT_TRUE((*table)->ok());
}

TEST_F(FailoverTest, RoundWithoutAPrimaryHasNoDeadline) {
  Run(1, TrainingJob(2, 1));
  Kill("server-0");
  Pass(milliseconds(1200));
  const auto table = CreateTable("t");
  Pass(seconds(50));
  EXPECT_FALSE(table->has_value());
  EXPECT_TRUE(servers_.TakeCalls().empty());
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  ASSERT_TRUE(table->has_value());
  EXPECT_TRUE((*table)->ok());
}

TEST_F(FailoverTest, ServerDeathDuringInspectionIsHarmless) {
  Run(3, TrainingJob(3, 2, "durability: MEMORY"));
  servers_.Hold();
  ASSERT_TRUE(Finish(worker_).ok());
  EXPECT_EQ(Status().state(), FINISHING);
  Kill("server-0");
  Pass(seconds(3));
  EXPECT_EQ(Status().state(), FINISHING);
  EXPECT_EQ(SetsText(), "server-1 server-2 | server-1 server-2 | server-2 server-1")
      << "replicas are made, and primaries do not move while the result is read";
  servers_.Release();
  EXPECT_EQ(Status().state(), COMPLETED);
}

// Otherwise the best parameters could not be restored, and the job would fail.
TEST_F(FailoverTest, RedundancyReturnsWhileTheJobFinishes) {
  Run(3, TrainingJob(3, 2, "min_in_sync: 2 evaluation { early_stopping { patience: 1 } }"));
  ReportAll(worker_, 1, true);
  Pass(milliseconds(100));
  servers_.Hold();
  ASSERT_TRUE(Finish(worker_).ok());
  Kill("server-0");
  Pass(seconds(5));
  EXPECT_EQ(Status().state(), FINISHING) << Status().failure();
  EXPECT_EQ(SetsText(), "server-1 server-2 | server-1 server-2 | server-2 server-1");
  servers_.Release();
  EXPECT_EQ(Status().state(), COMPLETED) << Status().failure();
}

// Workers ---------------------------------------------------------------------

TEST_F(FailoverTest, RanksOfADeadWorkerGoToItsSuccessor) {
  Run(1, TrainingJob(2, 1));
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  Kill("worker-0");
  Pass(milliseconds(1200));
  EXPECT_EQ(Status().state(), RUNNING);
  const RegisterResponse successor = Join(WORKER_ROLE);
  EXPECT_EQ(successor.node(), "worker-1");
  EXPECT_EQ(RanksOf(successor), "0 1 2 3");
  Pass(seconds(70));
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(FailoverTest, RestartedWorkerGetsItsRanksAtOnce) {
  Run(1, TrainingJob(2, 1));
  const auto old = GetAssignment(worker_);
  const absl::StatusOr<RegisterResponse> successor = ComeBack("worker-0");
  ASSERT_TRUE(successor.ok());
  EXPECT_EQ(successor->node(), "worker-0");
  EXPECT_EQ(RanksOf(*successor), "0 1 2 3");
  EXPECT_TRUE(absl::IsAborted((*GetAssignment(worker_))->status()));
  EXPECT_TRUE(absl::IsAborted(Finish(worker_)));
}

TEST_F(FailoverTest, SuccessorReportsTheEvaluationAgain) {
  Run(1, TrainingJob(2, 1));
  for (uint32_t rank = 0; rank < 3; ++rank) Report(worker_, rank, 1, false);
  const RegisterResponse successor = *ComeBack("worker-0");
  Answer<ReportEvaluationResponse> last;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(last == nullptr || !last->has_value());
    last = Report(successor, rank, 1, true);
  }
  ASSERT_TRUE(last->has_value());
  EXPECT_EQ((**last)->result().auc(), 1.0) << "only the successor's parts count";
}

TEST_F(FailoverTest, SyncJobReleasesNoRanks) {
  Run(1, TrainingJob(2, 1));
  Kill("worker-0");
  Pass(seconds(2));
  EXPECT_TRUE(servers_.TakeCalls().empty());
}

TEST_F(FailoverTest, ReleaseIsRepeatedWhileTheRankIsFree) {
  Run(1, TrainingJob(2, 1, "consistency { mode: ASYNC }"),
      [](Coordinator::Options& options) { options.worker_return_timeout = seconds(1000); });
  servers_.SetAdopted("s:1", 0);
  Kill("worker-0");
  // Longer than one round may take.
  Pass(kReleaseTimeout + seconds(10));
  EXPECT_TRUE(servers_.TakeCalls().empty());
  servers_.SetAdopted("s:1", 1);
  Pass(milliseconds(100));
  EXPECT_EQ(servers_.TakeCalls().size(), 4u);
  servers_.SetAdopted("s:1", 0);
  const RegisterResponse successor = Join(WORKER_ROLE);
  Kill(successor.node());
  Pass(seconds(2));
  ASSERT_TRUE(ComeBack(successor.node()).ok());
  Pass(kReleaseTimeout + seconds(10));
  servers_.SetAdopted("s:1", 1);
  Pass(milliseconds(100));
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "the ranks have a host again";
}

// Pauses ----------------------------------------------------------------------

TEST_F(FailoverTest, SchedulerPauseExtendsAllDeadlines) {
  Run(2, TrainingJob(2, 1));
  Kill("server-1");
  Kill("worker-0");
  Pass(seconds(2));
  clock_.Advance(seconds(600));
  // An unread heartbeat arrives before the first tick.
  EXPECT_TRUE(Beat(NodeNamed("server-0")).ok());
  coordinator_->Tick();
  EXPECT_EQ(Status().state(), RUNNING) << Status().failure();
  EXPECT_EQ(Routing().servers_size(), 1);
  EXPECT_TRUE(ComeBack("server-1", {1}).ok());
  EXPECT_TRUE(ComeBack("worker-0").ok());
  // No node lives longer because of it.
  Kill("server-0");
  Pass(milliseconds(1200));
  EXPECT_EQ(SetsText(), "- | server-1");
}

}  // namespace
}  // namespace pawl
