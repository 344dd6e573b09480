// A scheduler that dies, and its successor that continues from the saved state.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The default grace and lease.
constexpr milliseconds kUntilDead{3000};

class RestartTest : public CoordinatorFixture {
 protected:
  void Run(uint32_t servers, const std::string& job) {
    BeginWithStore(job, servers, 1);
    JoinAll(servers);
  }
};

TEST_F(RestartTest, NodesContinueAfterARestart) {
  Run(2, TrainingJob(4, 2));
  ASSERT_TRUE((*CreateTable("t"))->ok());
  servers_.TakeCalls();
  const std::string before = Routing().SerializeAsString();
  Restart();
  EXPECT_EQ(Status().state(), RUNNING);
  Pass(seconds(10));
  EXPECT_EQ(Routing().SerializeAsString(), before);
  EXPECT_EQ(Tables(), 1);
  EXPECT_TRUE(servers_.TakeCalls().empty());
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  ASSERT_TRUE(Finish(worker_).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(RestartTest, RoutingChangesAreNotSentAcrossARestart) {
  Run(6, TrainingJob(24, 2));
  Kill("server-1");
  Pass(seconds(3));
  const int before = routing_changes_;
  EXPECT_GT(before, 0);
  const uint64_t epoch = Routing().epoch();
  Restart();
  Pass(seconds(5));
  EXPECT_EQ(Routing().epoch(), epoch);
  const auto next = GetRouting(epoch, /*accepts_changes=*/true);
  EXPECT_FALSE(next->has_value());
  Join(SERVER_ROLE);
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ((**next)->since_epoch(), 0u)
      << "the former scheduler may have had another table of that epoch";
  const uint64_t joined = Routing().epoch();
  const auto then = GetRouting(joined, /*accepts_changes=*/true);
  const auto whole = GetRouting(joined);
  Join(SERVER_ROLE);
  ASSERT_TRUE(then->has_value() && whole->has_value());
  EXPECT_EQ((**then)->since_epoch(), joined);
  EXPECT_EQ((**then)->epoch(), (**whole)->epoch());
  EXPECT_EQ((**whole)->since_epoch(), 0u);
}

TEST_F(RestartTest, NodesLiveThroughTheRestartGrace) {
  Run(2, TrainingJob(4, 2));
  Restart(seconds(120));
  for (const char* node : {"server-0", "server-1", "worker-0"}) Kill(node);
  Pass(kUntilDead - kTickInterval);
  EXPECT_EQ(Routing().epoch(), 1u);
  for (FakeNode& node : nodes_) node.silent = false;
  Pass(seconds(5));
  EXPECT_EQ(Routing().epoch(), 1u);
}

TEST_F(RestartTest, ShorterLeaseDoesNotRevokeALongerOne) {
  Run(2, TrainingJob(4, 2, "durability: MEMORY"));
  ASSERT_EQ(options_.lease, milliseconds(1000));
  options_.lease = milliseconds(10000);
  Restart();
  Pass(seconds(1));
  options_.lease = milliseconds(1000);
  // The second restart still knows of it.
  Restart();
  Restart();
  Kill("server-1");
  // Grace and lease.
  Pass(seconds(11));
  EXPECT_EQ(Routing().epoch(), 1u);
  Pass(seconds(2));
  EXPECT_GT(Routing().epoch(), 1u);
  // A new incarnation starts with the present lease.
  const RegisterResponse back = *ComeBack("server-1");
  EXPECT_EQ(back.lease_ms(), 1000u);
  EXPECT_EQ(back.longest_lease_ms(), 10000u);
}

TEST_F(RestartTest, LongerLeaseIsGivenOnceItIsSaved) {
  Run(2, TrainingJob(4, 2));
  options_.lease = milliseconds(10000);
  Restart();
  HoldSaves();
  coordinator_->Tick();
  const RegisterResponse& node = NodeNamed("server-0").registration;
  EXPECT_EQ(Beat(node)->lease_ms(), 1000u);
  ReleaseSaves();
  EXPECT_EQ(Saved().longest_lease_ms(), 10000u);
  EXPECT_EQ(Beat(node)->lease_ms(), 10000u);
}

TEST_F(RestartTest, ServersLearnOfTheStartOnceItIsSaved) {
  Run(1, TrainingJob(4, 1));
  const RegisterResponse server = NodeNamed("server-0").registration;
  EXPECT_FALSE(Beat(server)->job_started()) << "no table is ready";
  HoldSaves();
  const auto created = CreateTable("w");
  EXPECT_FALSE(Beat(server)->job_started()) << "a restarted scheduler would know of no table";
  ReleaseSaves();
  ASSERT_TRUE((*created)->ok());
  EXPECT_TRUE(Beat(server)->job_started());
  Restart();
  EXPECT_TRUE(Beat(server)->job_started());
}

TEST_F(RestartTest, ServerThatDiedMeanwhileIsFailedOver) {
  Run(3, TrainingJob(6, 2, "durability: MEMORY"));
  Kill("server-1");
  Restart();
  Pass(kUntilDead);
  EXPECT_EQ(Routing().epoch(), 1u);
  Pass(seconds(1));
  for (const Replicas& set : Sets()) {
    EXPECT_FALSE(set.Has("server-1"));
    EXPECT_EQ(set.in_sync(), 2u);
  }
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(RestartTest, EarlyReturningServerIsFailedOverAtOnce) {
  Run(2, TrainingJob(2, 2));
  Restart();
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  EXPECT_EQ(SetsText(), "server-1 | server-1");
  const RoutingTable routing = Routing();
  EXPECT_GT(routing.epoch(), 1u);
  EXPECT_EQ(routing.replicas(0).confirm_since(), routing.replicas(0).primary_since());
  EXPECT_EQ(routing.replicas(0).retained_size(), 1)
      << "server-1 may be dead: server-0 is needed until it confirms";
  Pass(milliseconds(300));
  EXPECT_EQ(Routing().replicas(0).confirm_since(), 0u);
  EXPECT_EQ(Routing().replicas(0).retained_size(), 1) << "server-1 is the only one that has it";
  Pass(kUntilDead + seconds(1));
  EXPECT_EQ(SetsText(), "server-1 server-0 | server-0 server-1");
  EXPECT_EQ(Routing().replicas(0).retained_size(), 0);
}

TEST_F(RestartTest, ReturningServerReplacesADeadSuccessor) {
  Run(2, TrainingJob(2, 2));
  Kill("server-1");
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  ASSERT_EQ(SetsText(), "server-1 | server-1") << "its lease has not expired";
  const std::string before = Routing().SerializeAsString();
  Restart(milliseconds(100));
  EXPECT_EQ(Routing().SerializeAsString(), before);
  Pass(kUntilDead + milliseconds(100));
  EXPECT_EQ(SetsText(), "server-0 | server-0");
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(RestartTest, RoutingIsConfirmedOnceItIsSaved) {
  Run(2, TrainingJob(2, 2));
  FakeNode& server = NodeNamed("server-1");
  server.confirms = false;
  ASSERT_TRUE(ComeBack("server-0", {0, 1}).ok());
  Pass(milliseconds(100));
  ASSERT_EQ(server.routing.epoch(), Routing().epoch());
  HoldSaves();
  EXPECT_TRUE(absl::IsUnavailable(Confirm(server))) << "it is not answered";
  Kill("server-1");
  Restart();
  ReleaseSaves();
  Pass(kUntilDead + milliseconds(100));
  EXPECT_EQ(SetsText(), "server-0 | server-0") << "server-1 has acknowledged nothing alone";
}

TEST_F(RestartTest, ConfirmationNeedsAPresentServerAndAKnownEpoch) {
  Run(2, TrainingJob(2, 2));
  FakeNode& server = NodeNamed("server-1");
  FakeNode former = server;
  server.routing.set_epoch(77);
  EXPECT_TRUE(absl::IsInvalidArgument(Confirm(server)));
  ASSERT_TRUE(ComeBack("server-1", {0, 1}).ok());
  EXPECT_TRUE(absl::IsAborted(Confirm(former)));
  FakeNode& worker = NodeNamed("worker-0");
  EXPECT_TRUE(absl::IsInvalidArgument(Confirm(worker)));
}

TEST_F(RestartTest, OperatorReleasesRetainedReplicas) {
  Run(2, TrainingJob(2, 2));
  const auto release = [&](const std::string& node, bool force) {
    ReleaseRetainedRequest request;
    request.set_node(node);
    request.set_force(force);
    return ResultOf(Call(&Coordinator::ReleaseRetained, request));
  };
  EXPECT_TRUE(absl::IsNotFound(release("server-7", false).status()));
  EXPECT_EQ(release("server-0", false)->partitions(), 0u);
  Kill("server-0");
  NodeNamed("server-1").confirms = false;
  Pass(seconds(2));
  const absl::Status refused = release("server-0", false).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "partitions 0, 1")) << refused;
  NodeNamed("server-1").confirms = true;
  Pass(milliseconds(200));
  EXPECT_EQ(Saved().placement().partitions(0).retained_size(), 1)
      << "two replicas are wanted and one exists";
  EXPECT_EQ(release("server-0", false)->partitions(), 2u);
  EXPECT_EQ(Saved().placement().partitions(0).retained_size(), 0);
  Kill("server-1");
  Pass(seconds(2));
  EXPECT_TRUE(absl::IsFailedPrecondition(release("server-1", false).status()));
  EXPECT_EQ(release("server-1", true)->partitions(), 2u);
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_TRUE(absl::StrContains(Status().failure(), "released what server-1 retained"))
      << Status().failure();
}

TEST_F(RestartTest, NothingMovesBeforeAllServersHaveReported) {
  Run(2, TrainingJob(4, 1));
  NodeNamed("server-1").draining = true;
  NodeNamed("server-0").feeds = NodeNamed("server-1").feeds = false;
  Pass(milliseconds(100));
  const uint64_t epoch = Routing().epoch();
  ASSERT_EQ(SetsText(), "server-0 | server-1 (server-0) | server-0 | server-1 (server-0)");
  Restart();
  coordinator_->Tick();
  Save();
  Pass(kUntilDead - 2 * kTickInterval);
  EXPECT_EQ(Routing().epoch(), epoch);
  NodeNamed("server-1").feeds = true;
  Pass(seconds(2));
  EXPECT_EQ(SetsText(), "server-0 | server-0 | server-0 | server-0");
}

TEST_F(RestartTest, HandoverInProgressIsCompleted) {
  Run(2, TrainingJob(1, 1));
  FakeNode& former = NodeNamed("server-0");
  former.draining = true;
  Pass(milliseconds(150));
  former.adopts = false;
  Pass(milliseconds(200));
  ASSERT_EQ(SetsText(), "- server-1");
  Restart();
  Pass(milliseconds(200));
  EXPECT_EQ(SetsText(), "- server-1") << "server-0 has not confirmed it";
  former.adopts = true;
  Pass(milliseconds(300));
  EXPECT_EQ(SetsText(), "server-1");
}

TEST_F(RestartTest, LastReplicaIsWaitedForAgain) {
  Run(2, TrainingJob(2, 1));
  Kill("server-1");
  Pass(seconds(50));
  Restart(seconds(100));
  Pass(seconds(50));
  EXPECT_EQ(SetsText(), "server-0 | -");
  ASSERT_TRUE(ComeBack("server-1", {1}).ok());
  EXPECT_EQ(SetsText(), "server-0 | server-1");
}

TEST_F(RestartTest, MissingLastReplicaIsNamedAfterARestart) {
  Run(2, TrainingJob(2, 1));
  Kill("server-1");
  Pass(seconds(2));
  Restart();
  Pass(seconds(61));
  EXPECT_EQ(Status().failure(),
            "server-1 (host pid 2, s:2) died: no heartbeat for 1.1 s; partition 1 is nowhere else, "
            "and none of those has come back within 60.0 s");
}

TEST_F(RestartTest, AbsentWorkerIsWaitedForAgain) {
  Run(1, TrainingJob(2, 1, "consistency { mode: ASYNC }"));
  Kill("worker-0");
  Pass(seconds(40));
  servers_.TakeCalls();
  Restart();
  Pass(seconds(40));
  EXPECT_EQ(servers_.TakeCalls().size(), 4u);
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(RanksOf(Join(WORKER_ROLE)), "0 1 2 3");
  Pass(seconds(70));
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(RestartTest, TableInProgressIsCreated) {
  Run(2, TrainingJob(2, 1));
  servers_.Hold();
  const auto lost = CreateTable("t");
  servers_.TakeCalls();
  Restart();
  EXPECT_EQ(Tables(), 0);
  const auto again = CreateTable("t");
  coordinator_->Tick();
  Save();
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 CreateTable", "s:2 CreateTable"}));
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ((**again)->table().id(), 1u);
}

TEST_F(RestartTest, EvaluationsContinueAfterARestart) {
  Run(1, TrainingJob(2, 1, "evaluation { early_stopping { patience: 2 } }"));
  EXPECT_FALSE((**ReportAll(worker_, 1, true))->stop());
  EXPECT_FALSE((**ReportAll(worker_, 2, false))->stop());
  Restart();
  EXPECT_TRUE((**ReportAll(worker_, 3, false))->stop());
  servers_.TakeCalls();
  Restart();
  ASSERT_TRUE(Finish(worker_).ok());
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 RestoreBest", "s:1 Inspect"}));
  EXPECT_EQ(reports_.at(0).evaluation->evaluation(), 1u);
  EXPECT_EQ(reports_.at(0).status.evaluations_size(), 3);
}

TEST_F(RestartTest, DataStaysTheSameAfterARestart) {
  Run(1, TrainingJob(2, 1));
  auto request = From<AgreeOnDataRequest>(worker_);
  request.mutable_data()->set_train(7);
  EXPECT_TRUE(ResultOf(Call(&Coordinator::AgreeOnData, request)).ok());
  Restart();
  EXPECT_TRUE(ResultOf(Call(&Coordinator::AgreeOnData, request)).ok());
  request.mutable_data()->set_train(8);
  EXPECT_EQ(ResultOf(Call(&Coordinator::AgreeOnData, request)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RestartTest, InspectionIsRepeatedAfterARestart) {
  Run(1, TrainingJob(2, 1));
  servers_.Hold();
  ASSERT_TRUE(Finish(worker_).ok());
  EXPECT_EQ(Saved().state(), FINISHING);
  Restart();
  Pass(milliseconds(100));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(RestartTest, EndBeginsOnceAfterARestart) {
  Run(1, TrainingJob(2, 1));
  Restart(milliseconds(100));
  servers_.Hold();
  servers_.TakeCalls();
  // Before the first tick.
  ASSERT_TRUE(Finish(worker_).ok());
  Pass(milliseconds(100));
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Inspect"}));
}

TEST_F(RestartTest, StoppedJobIsReportedOnceAfterARestart) {
  Run(1, TrainingJob(2, 1));
  Restart(milliseconds(100));
  // Before the first tick.
  ASSERT_TRUE(StopJob("enough").ok());
  Pass(milliseconds(200));
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(RestartTest, ServersCreateATableOnceAfterARestart) {
  Run(1, TrainingJob(2, 1));
  Restart(milliseconds(100));
  servers_.Hold();
  servers_.TakeCalls();
  // Before the first tick.
  const auto table = CreateTable("w");
  Pass(milliseconds(100));
  EXPECT_EQ(servers_.TakeCalls().size(), 1u);
}

TEST_F(RestartTest, EndOfTheJobIsReportedAgain) {
  Run(2, TrainingJob(2, 1, "durability: MEMORY"));
  ASSERT_TRUE((*CreateTable("w"))->ok());
  Kill("server-1");
  Pass(seconds(62));
  const std::string failure = Status().failure();
  // Another node dies after the end: its replicas no longer matter.
  Kill("server-0");
  Pass(seconds(2));
  Restart();
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Beat(worker_)->failure(), failure);
  Pass(milliseconds(100));
  EXPECT_TRUE(coordinator_->ended());
  EXPECT_EQ(reports_.size(), 2u) << "the first one may not have been written";
  EXPECT_EQ(reports_[1].status.failure(), failure);
}

TEST_F(RestartTest, CompletedJobHasEndedAtOnce) {
  Run(1, TrainingJob(2, 1));
  ASSERT_TRUE(Finish(worker_).ok());
  Restart();
  EXPECT_TRUE(coordinator_->ended());
  EXPECT_EQ(Beat(worker_)->job_state(), COMPLETED);
  EXPECT_EQ(reports_.size(), 1u);
  coordinator_->Close();
  Save();
  EXPECT_TRUE(Saved().closed());
}

TEST_F(RestartTest, WorkerDeclaredDeadHearsOfTheEnd) {
  Run(1, TrainingJob(2, 1));
  auto from_worker = From<HeartbeatRequest>(worker_);
  from_worker.set_job_id(options_.job_id);
  auto from_server = From<HeartbeatRequest>(nodes_[0].registration);
  from_server.set_job_id(options_.job_id);
  ASSERT_TRUE(Finish(worker_).ok());
  Kill("worker-0");
  Kill("server-0");
  Pass(seconds(2));
  EXPECT_TRUE(coordinator_->AllNodesGone());
  EXPECT_EQ(coordinator_->Heartbeat(from_worker)->job_state(), COMPLETED);
  EXPECT_EQ(coordinator_->Heartbeat(from_server).status().code(), absl::StatusCode::kAborted)
      << "a server hears of it when it registers, without a lease";
  from_worker.set_job_id(options_.job_id + 1);
  EXPECT_EQ(coordinator_->Heartbeat(from_worker).status().code(), absl::StatusCode::kAborted)
      << "it may be of another job";
}

TEST_F(RestartTest, TrainingTimeIncludesTheOutage) {
  uint64_t unix_ms = 1000000;
  BeginWithStore(TrainingJob(1, 1), 1, 1,
                 [&](Coordinator::Options& options) { options.unix_ms = [&] { return unix_ms; }; });
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  Restart();
  unix_ms += 70000;
  Restart();
  Pass(seconds(1));
  EXPECT_DOUBLE_EQ(Status().train_s(), 71);
}

// While nothing can be saved --------------------------------------------------

TEST_F(RestartTest, UnsavedStateIsNotPublished) {
  Run(2, TrainingJob(2, 2));
  const auto waiting = GetRouting(1);
  HoldSaves();
  Kill("server-1");
  Pass(seconds(2));
  EXPECT_FALSE(waiting->has_value());
  EXPECT_EQ(Routing().epoch(), 1u);
  EXPECT_EQ(Beat(NodeNamed("server-0"))->routing_epoch(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(Beat(NodeNamed("server-1").registration).status()))
      << "in the saved state the node is not dead";
  EXPECT_FALSE(Register(Registration(CLIENT_ROLE, 77)).ok());
  EXPECT_TRUE(absl::IsUnavailable(Finish(worker_)));
  EXPECT_EQ(Status().state(), RUNNING);
  const auto table = CreateTable("t");
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "servers are not called either";
  ReleaseSaves();
  EXPECT_EQ((**waiting)->epoch(), 2u);
  EXPECT_TRUE(absl::IsAborted(Beat(NodeNamed("server-1").registration).status()));
  EXPECT_NE(Status().state(), RUNNING);
}

TEST_F(RestartTest, ShutdownDoesNotWaitForAFailingStore) {
  Run(1, TrainingJob(2, 1));
  ASSERT_TRUE(Finish(worker_).ok());
  ASSERT_EQ(Status().state(), COMPLETED);
  coordinator_->Close();
  Save();
  ASSERT_TRUE(Saved().closed());
  HoldSaves();
  const auto early = Call(&Coordinator::Goodbye, From<GoodbyeRequest>(worker_));
  EXPECT_FALSE(early->has_value());
  coordinator_->StopHoldingAnswers();
  EXPECT_TRUE(early->has_value()) << "it would prevent the shutdown";
  EXPECT_TRUE(Goodbye(NodeNamed("server-0").registration).ok());
  ReleaseSaves();
  EXPECT_TRUE(Saved().closed());
}

TEST_F(RestartTest, ChangeDuringASaveIsNotPublishedYet) {
  Run(3, TrainingJob(3, 3));
  HoldSaves();
  Kill("server-1");
  Pass(seconds(2));
  std::optional<UnsavedState> first = coordinator_->TakeUnsaved();
  const uint64_t first_epoch = first->state.placement().epoch();
  Kill("server-2");
  Pass(seconds(2));
  const auto waiting = GetRouting(first_epoch);
  saved_ = first->state.SerializeAsString();
  coordinator_->OnStateSaved(first->change);
  EXPECT_EQ(Routing().epoch(), first_epoch);
  EXPECT_FALSE(waiting->has_value());
  EXPECT_FALSE(coordinator_->ended());
  ReleaseSaves();
  EXPECT_TRUE(waiting->has_value());
}

TEST_F(RestartTest, UnsavedChangeIsMadeAgain) {
  Run(2, TrainingJob(2, 2));
  HoldSaves();
  Kill("server-1");
  Pass(seconds(2));
  Restart();
  ReleaseSaves();
  EXPECT_EQ(Routing().epoch(), 1u);
  Pass(kUntilDead + seconds(1));
  EXPECT_EQ(SetsText(), "server-0 | server-0");
}

TEST_F(RestartTest, FailingStoreEndsNothing) {
  Run(1, TrainingJob(1, 1, "evaluation { early_stopping { patience: 1 } }"));
  HoldSaves();
  const auto last = ReportAll(worker_, 1, true);
  const auto table = CreateTable("t");
  Pass(seconds(200));
  EXPECT_EQ(Status().state(), RUNNING);
  ReleaseSaves();
  Pass(milliseconds(100));
  EXPECT_EQ(Status().state(), RUNNING) << Status().failure();
  ASSERT_TRUE(last->has_value());
  EXPECT_TRUE((*last)->ok());
  EXPECT_TRUE((*table)->ok());
}

TEST_F(RestartTest, EvaluationIsComputedDuringASave) {
  Run(1, TrainingJob(1, 1));
  HoldSaves();
  CreateTable("t");
  const auto last = ReportAll(worker_, 1, true);
  EXPECT_EQ(Status().evaluations_size(), 1);
  EXPECT_FALSE(last->has_value()) << "the result is not saved";
  ReleaseSaves();
  ASSERT_TRUE(last->has_value());
  EXPECT_TRUE((*last)->ok());
}

TEST_F(RestartTest, FormerLeaderRenewsNoLease) {
  bool leads = true;
  BeginWithStore(TrainingJob(1, 1), 1, 1,
                 [&](Coordinator::Options& options) { options.leads = [&] { return leads; }; });
  const RegisterResponse server = Join(SERVER_ROLE);
  EXPECT_TRUE(Beat(server).ok());
  leads = false;
  EXPECT_TRUE(absl::IsUnavailable(Beat(server).status()));
}

TEST_F(RestartTest, RoutingThatWasNeverPublishedShowsAnOutdatedState) {
  std::vector<std::string> reasons;
  BeginWithStore(TrainingJob(2, 2), 2, 1, [&](Coordinator::Options& options) {
    options.state_is_outdated = [&](const std::string& why) { reasons.push_back(why); };
  });
  for (uint32_t i = 0; i < 2; ++i) Join(SERVER_ROLE);
  Join(WORKER_ROLE);
  Pass(milliseconds(100));
  HoldSaves();
  Kill("server-1");
  Pass(seconds(2));
  Beat(NodeNamed("server-0")).IgnoreError();
  EXPECT_TRUE(reasons.empty()) << "what is not saved is not announced";
  NodeNamed("server-0").routing.set_epoch(9);
  EXPECT_TRUE(Beat(NodeNamed("server-0")).ok());
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_TRUE(
      absl::StrContains(reasons[0], "acts by routing epoch 9, and the newest of this state is 1"))
      << reasons[0];
}

TEST_F(RestartTest, ServersOfAnEndedJobShowNoOutdatedState) {
  std::vector<std::string> reasons;
  BeginWithStore(TrainingJob(2, 1), 1, 1, [&](Coordinator::Options& options) {
    options.state_is_outdated = [&](const std::string& why) { reasons.push_back(why); };
  });
  JoinAll(1);
  ASSERT_TRUE(Finish(worker_).ok());
  ASSERT_EQ(Status().state(), COMPLETED);
  ASSERT_GT(NodeNamed("server-0").routing.epoch(), 0u);
  // Before the server has heard of the end.
  Restart(milliseconds(100));
  EXPECT_EQ(Beat(NodeNamed("server-0"))->job_state(), COMPLETED);
  EXPECT_TRUE(reasons.empty()) << reasons[0];
}

// For ThreadSanitizer: the saver's thread runs with those of the callers.
TEST_F(RestartTest, StateIsSavedWhileCallsArrive) {
  constexpr uint64_t kCallers = 4;
  constexpr uint64_t kCalls = 50;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> answered = 0;
  std::atomic<uint64_t> refused = 0;
  std::atomic<uint64_t> saves = 0;
  Begin(TrainingJob(2, 1), 1, 1,
        [](Coordinator::Options& options) { options.state_changed = [] {}; });
  std::thread saver([&] {
    while (!stop) {
      const std::optional<UnsavedState> unsaved = coordinator_->TakeUnsaved();
      if (!unsaved.has_value()) continue;
      coordinator_->OnStateSaved(unsaved->change);
      ++saves;
    }
  });
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      for (uint64_t call = 0; call < kCalls; ++call) {
        coordinator_->Register(Registration(CLIENT_ROLE, 1 + i * kCalls + call),
                               [&](const absl::StatusOr<RegisterResponse>& response) {
                                 refused += !response.ok();
                                 ++answered;
                               });
        coordinator_->Tick();
        Status();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(Eventually([&] { return answered == kCallers * kCalls; })) << answered << " answers";
  stop = true;
  saver.join();
  EXPECT_EQ(refused, 0u);
  // Every answer comes after the save of its state.
  EXPECT_GT(saves, 0u);
}

}  // namespace
}  // namespace pawl
