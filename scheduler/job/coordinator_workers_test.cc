// Workers that join and leave while the job runs, and the ranks that move between them.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/rpc/version.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorWorkersTest : public CoordinatorFixture {
 protected:
  // The first waits at the barrier for rank 2, and gives up ranks 2 and 3, which the joiner gets.
  // Returns that call.
  Ticket MoveRanksAtABarrier(RegisterResponse& first, RegisterResponse& joiner) {
    Join(SERVER_ROLE);
    first = JoinFollower();
    const std::map<uint32_t, uint64_t> all = RanksIn(GetAssignmentWhenReady(first));
    joiner = JoinFollower();
    Barrier(first, 4, 2);
    const Ticket ticket = ticket_;
    EXPECT_TRUE(GiveUp(first, {{2, all.at(2)}, {3, all.at(3)}}).ok());
    EXPECT_EQ(RanksOf(joiner), "2 3");
    return ticket;
  }
  // The others arrive, and the call of rank 2's host is answered.
  void ExpectThatAllMeet(const RegisterResponse& first, const RegisterResponse& joiner,
                         const Answer<BarrierResponse>& host_of_2) {
    EXPECT_FALSE(host_of_2->has_value()) << (*host_of_2)->status();
    Barrier(first, 4, 0);
    Barrier(first, 4, 1);
    const auto last = Barrier(joiner, 4, 3);
    ASSERT_TRUE(last->has_value());
    EXPECT_TRUE((*last)->ok()) << (*last)->status();
    ASSERT_TRUE(host_of_2->has_value());
    EXPECT_TRUE((*host_of_2)->ok()) << (*host_of_2)->status();
  }
  absl::StatusOr<ScaleResponse> Scale(uint32_t workers) {
    ScaleRequest request;
    request.set_workers(workers);
    return ResultOf(Call(&Coordinator::Scale, request));
  }
  absl::Status Drain(const std::string& node) {
    DrainRequest request;
    request.set_node(node);
    return ResultOf(Call(&Coordinator::Drain, request)).status();
  }
};

TEST_F(CoordinatorWorkersTest, OtherWorkersTakeRanksAfterTheGrace) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse victim = JoinFollower();
  const auto before = GetAssignmentWhenReady(living);
  EXPECT_EQ(RanksOf(living), "0 1");
  const auto next = GetAssignmentWhenReady(living, (**before)->version());
  EXPECT_FALSE(next->has_value());
  const uint64_t of_victim = RanksIn(GetAssignmentWhenReady(victim)).at(2);
  Kill(victim.node());
  Pass(options_.lease + options_.worker_takeover_grace / 2);
  EXPECT_FALSE(next->has_value());
  Pass(options_.worker_takeover_grace);
  const std::map<uint32_t, uint64_t> ranks = RanksIn(next);
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_EQ(ranks.at(0), RanksIn(before).at(0)) << "its present rank is unaffected";
  EXPECT_GT(ranks.at(2), of_victim);
  EXPECT_GT((**next)->version(), (**before)->version());
  Pass(seconds(120));
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(Finish(living).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(CoordinatorWorkersTest, CrashLoopingWorkerFailsTheJob) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  RegisterResponse worker = Join(WORKER_ROLE);
  for (uint32_t incarnation = 0; incarnation <= kMaxLossesWithoutAStep; ++incarnation) {
    EXPECT_EQ(Status().state(), RUNNING) << incarnation;
    // Later calls are repeats.
    Report(worker, {{0, 7, 70}});
    Pass(seconds(20));
    const auto next = ComeBack(worker.node());
    ASSERT_TRUE(next.ok()) << next.status();
    worker = *next;
  }
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find(
                "was restarted; it was the last of 5 in a row that died as host of rank 0"),
            std::string::npos)
      << Status().failure();
}

TEST_F(CoordinatorWorkersTest, DrainedWorkerGivesItsRanksToOthers) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse staying = JoinFollower();
  const RegisterResponse leaving = JoinFollower();
  ASSERT_TRUE(Drain(leaving.node()).ok());
  EXPECT_TRUE(Beat(leaving)->drain());
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(leaving)).empty()) << "to be given up";
  EXPECT_TRUE(Goodbye(leaving).ok());
  EXPECT_EQ(RanksIn(GetAssignmentWhenReady(staying)).size(), 4u);
  // The last one stays.
  EXPECT_TRUE(absl::IsFailedPrecondition(Drain(staying.node())));
}

TEST_F(CoordinatorWorkersTest, StandbyGetsRanksWhenTheJobIsScaled) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(second)).empty());
  const absl::StatusOr<ScaleResponse> scaled = Scale(2);
  ASSERT_TRUE(scaled.ok());
  EXPECT_EQ(scaled->workers_missing(), 0u);
  const auto before = RanksIn(GetAssignmentWhenReady(first));
  EXPECT_EQ(before.size(), 2u) << "the others are to be given up";
}

TEST_F(CoordinatorWorkersTest, RestartedWorkerPrecedesStandbys) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  const RegisterResponse spare = JoinFollower();
  EXPECT_EQ(RanksOf(spare), "");
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(spare)).empty());
  // It registers again before its death is known.
  RegisterRequest again = Return(second.node(), ++nonce_);
  again.set_follows_assignment(true);
  Kill(second.node());
  Pass(options_.lease / 2);
  const RegisterResponse returned = JoinBy(again);
  EXPECT_EQ(RanksOf(returned), "2 3");
  // After a detected death the standby gets the ranks.
  Kill(first.node());
  Pass(options_.lease + milliseconds(100));
  EXPECT_EQ(RanksOf(spare), "0 1");
}

TEST_F(CoordinatorWorkersTest, RanksOfALeavingWorkerMoveAtOnce) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse leaving = JoinFollower();
  ASSERT_TRUE(Goodbye(leaving).ok());
  EXPECT_EQ(RanksOf(living), "0 1 2 3");
}

TEST_F(CoordinatorWorkersTest, RankOfADeadWorkerIsReleasedUntilTakenOver) {
  Begin(absl::StrCat(kTraining, "consistency { mode: BOUNDED staleness: 2 }"), 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse victim = JoinFollower();
  const std::map<uint32_t, uint64_t> ranks = RanksIn(GetAssignmentWhenReady(victim));
  servers_.TakeCalls();
  Kill(victim.node());
  Pass(options_.lease + milliseconds(200));
  EXPECT_EQ(servers_.TakeCalls(),
            (std::vector<std::string>{absl::StrCat("s:1 ReleaseLogicalWorker 2 ", ranks.at(2)),
                                      absl::StrCat("s:1 ReleaseLogicalWorker 3 ", ranks.at(3))}));
  Pass(seconds(6));
  EXPECT_EQ(RanksOf(living), "0 1 2 3");
}

TEST_F(CoordinatorWorkersTest, FinishedRanksAreReleasedUnlessAllHaveFinished) {
  BeginWithStore(absl::StrCat(kTraining, "consistency { mode: BOUNDED staleness: 2 }"), 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  const std::map<uint32_t, uint64_t> ranks = RanksIn(GetAssignmentWhenReady(first));
  ASSERT_EQ(ranks.size(), 2u);
  const std::vector<std::string> releases = {
      absl::StrCat("s:1 ReleaseLogicalWorker 0 ", ranks.at(0)),
      absl::StrCat("s:1 ReleaseLogicalWorker 1 ", ranks.at(1))};
  servers_.TakeCalls();
  ASSERT_TRUE(Finish(first).ok());
  EXPECT_EQ(servers_.TakeCalls(), releases);
  Restart();
  Pass(seconds(1));
  const std::vector<std::string> again = servers_.TakeCalls();
  for (const std::string& release : releases)
    EXPECT_EQ(std::count(again.begin(), again.end(), release), 1) << release;
  Kill(first.node());
  Pass(seconds(5));
  EXPECT_EQ(servers_.TakeCalls(), releases) << "it might have taken them over again";
  ASSERT_TRUE(Finish(second).ok());
  for (const std::string& call : servers_.TakeCalls())
    EXPECT_FALSE(absl::StrContains(call, "ReleaseLogicalWorker")) << call;
}

TEST_F(CoordinatorWorkersTest, RestartedWorkerGetsItsFinishedRanksInItsIncarnation) {
  Begin(absl::StrCat(kTraining, "consistency { mode: ASYNC }"), 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE);
  Join(WORKER_ROLE);
  const std::map<uint32_t, uint64_t> before = RanksIn(GetAssignment(first));
  ASSERT_EQ(before.size(), 2u);
  ASSERT_TRUE(Finish(first).ok());
  const absl::StatusOr<RegisterResponse> again = ComeBack(first.node());
  ASSERT_TRUE(again.ok()) << again.status();
  std::map<uint32_t, uint64_t> expected;
  for (const auto& [rank, incarnation] : before) expected[rank] = again->incarnation();
  EXPECT_EQ(RanksIn(GetAssignment(*again)), expected);
}

TEST_F(CoordinatorWorkersTest, FollowerNamesTheRanksThatItHasFinished) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  JoinFollower();
  const auto all = From<FinishWorkRequest>(first);
  EXPECT_EQ(ResultOf(Call(&Coordinator::FinishWork, all)).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "it might have got a rank that it has not heard of";
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(CoordinatorWorkersTest, ElasticJoinerGetsRanksThatWereGivenUp) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const auto all = GetAssignmentWhenReady(first);
  ASSERT_EQ(RanksIn(all).size(), 4u);
  const auto fewer = GetAssignmentWhenReady(first, (**all)->version());
  const RegisterResponse joiner = JoinFollower(/*ready=*/false);
  EXPECT_FALSE(fewer->has_value()) << "it has no data yet";
  const auto none = GetAssignmentWhenReady(joiner);
  ASSERT_TRUE(none->has_value());
  EXPECT_EQ((**none)->logical_workers_size(), 0);
  const auto some = GetAssignmentWhenReady(joiner, (**none)->version());
  ASSERT_TRUE(fewer->has_value());
  EXPECT_EQ(RanksOf(first), "0 1");
  EXPECT_FALSE(some->has_value());
  ASSERT_TRUE(GiveUp(first, {{2, RanksIn(all).at(2)}, {3, RanksIn(all).at(3)}}).ok());
  ASSERT_TRUE(some->has_value());
  EXPECT_EQ(RanksOf(joiner), "2 3");
  EXPECT_GT(RanksIn(some).at(2), RanksIn(all).at(2));
  ASSERT_TRUE(GiveUp(first, {{2, RanksIn(all).at(2)}}).ok()) << "repeated";
  EXPECT_EQ(RanksOf(joiner), "2 3");
  EXPECT_EQ(Status().nodes(1).logical_workers_size() + Status().nodes(2).logical_workers_size(), 4);
}

TEST_F(CoordinatorWorkersTest, JoinerOfAnInelasticJobStandsBy) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse joiner = JoinFollower();
  EXPECT_EQ(RanksOf(first), "0 1 2 3");
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(joiner)).empty());
}

TEST_F(CoordinatorWorkersTest, OldWorkerIsRefusedInAJobThatClipsTheNorm) {
  Begin(absl::StrCat(kTraining, "clip_global_norm: 1"), 1, 1);
  Join(SERVER_ROLE);
  RegisterRequest request = Registration(WORKER_ROLE, 77);
  request.set_newest_protocol(kStepPhasesProtocol - 1);
  EXPECT_TRUE(absl::IsUnimplemented(Register(request).status()));
  request.set_newest_protocol(kStepPhasesProtocol);
  EXPECT_TRUE(Register(request).ok());
}

TEST_F(CoordinatorWorkersTest, FormerHostDoesNotCountForItsRank) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  RegisterResponse first, joiner;
  coordinator_->Cancel(MoveRanksAtABarrier(first, joiner), /*deadline_passed=*/false);
  const auto late = Barrier(first, 4, 2);
  ASSERT_TRUE(late->has_value());
  EXPECT_EQ((*late)->status().code(), absl::StatusCode::kFailedPrecondition) << (*late)->status();
  ExpectThatAllMeet(first, joiner, Barrier(joiner, 4, 2));
}

TEST_F(CoordinatorWorkersTest, FormerHostDoesNotCountAfterARestart) {
  BeginWithStore(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  RegisterResponse first, joiner;
  MoveRanksAtABarrier(first, joiner);
  Restart(milliseconds(500));
  EXPECT_EQ((*Barrier(first, 4, 2))->status().code(), absl::StatusCode::kFailedPrecondition);
  ExpectThatAllMeet(first, joiner, Barrier(joiner, 4, 2));
}

TEST_F(CoordinatorWorkersTest, DeadlineOfAFormerHostFailsNoBarrier) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  RegisterResponse first, joiner;
  const Ticket of_former_host = MoveRanksAtABarrier(first, joiner);
  const auto host_of_2 = Barrier(joiner, 4, 2);
  coordinator_->Cancel(of_former_host, /*deadline_passed=*/true);
  ExpectThatAllMeet(first, joiner, host_of_2);
}

TEST_F(CoordinatorWorkersTest, RankTakenOverDuringTheStartDelaysNothing) {
  Begin(kTraining, 1, 2);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse victim = JoinFollower();
  Kill(victim.node());
  Pass(options_.lease + milliseconds(100));
  Join(SERVER_ROLE);
  EXPECT_EQ(Status().state(), STARTING) << "its ranks are kept for it";
  Pass(options_.worker_takeover_grace + milliseconds(100));
  EXPECT_EQ(RanksOf(living), "0 1 2 3");
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(CoordinatorWorkersTest, ScalingDownDuringTheStartEndsTheWait) {
  Begin(kTraining, 1, 4);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  EXPECT_EQ(Status().state(), STARTING);
  ASSERT_TRUE(Scale(2).ok());
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(RanksOf(first), "0 1");
  EXPECT_EQ(RanksOf(second), "2 3");
}

TEST_F(CoordinatorWorkersTest, WantedWorkersSurviveARestart) {
  BeginWithStore(kTraining, 1, 4);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  ASSERT_TRUE(Scale(2).ok());
  EXPECT_EQ(Status().state(), STARTING);
  Restart(milliseconds(500));
  const RegisterResponse second = JoinFollower();
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(RanksOf(first), "0 1");
  EXPECT_EQ(RanksOf(second), "2 3");
}

TEST_F(CoordinatorWorkersTest, ExcessWorkersDuringTheStartGetNoRanks) {
  Begin(kTraining, 1, 5);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  const RegisterResponse third = JoinFollower();
  const RegisterResponse fourth = JoinFollower();
  ASSERT_TRUE(Scale(2).ok());
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(RanksOf(first), "0 1");
  EXPECT_EQ(RanksOf(second), "2 3");
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(third)).empty());
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(fourth)).empty());
}

TEST_F(CoordinatorWorkersTest, DrainedWorkerIsNotWaitedForDuringTheStart) {
  Begin(kTraining, 1, 3);
  Join(SERVER_ROLE);
  const RegisterResponse staying = JoinFollower();
  const RegisterResponse leaving = JoinFollower();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Drain(leaving.node()).ok());
    EXPECT_EQ(Status().scale().workers(), 2u) << "one less, however often it is requested";
  }
  EXPECT_EQ(Status().state(), STARTING);
  const RegisterResponse third = JoinFollower();
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(RanksOf(staying), "0 1");
  EXPECT_EQ(RanksOf(third), "2 3");
  EXPECT_TRUE(RanksIn(GetAssignmentWhenReady(leaving)).empty());
}

TEST_F(CoordinatorWorkersTest, StartTimeoutNamesTheWantedWorkers) {
  Begin(kTraining, 1, 4);
  JoinFollower();
  ASSERT_TRUE(Scale(2).ok());
  Pass(options_.start_timeout + seconds(1));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("1 servers and 2 workers"), std::string::npos)
      << Status().failure();
}

TEST_F(CoordinatorWorkersTest, FinishedRanksDoNotMove) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse victim = JoinFollower();
  auto request = From<FinishWorkRequest>(victim);
  request.add_logical_workers(2);
  Call(&Coordinator::FinishWork, request);
  Kill(victim.node());
  Pass(seconds(8));
  EXPECT_EQ(RanksOf(living), "0 1 3");
  ASSERT_TRUE(Finish(living).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(CoordinatorWorkersTest, WorkersMustReadTheSameData) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  const auto agree = [&](const RegisterResponse& worker, uint64_t samples, uint64_t train,
                         uint64_t eval) {
    auto request = From<AgreeOnDataRequest>(worker);
    request.mutable_data()->set_train_samples(samples);
    request.mutable_data()->set_train(train);
    request.mutable_data()->set_eval_samples(10);
    request.mutable_data()->set_eval(eval);
    return ResultOf(Call(&Coordinator::AgreeOnData, request)).status();
  };
  EXPECT_TRUE(agree(first, 2000, 7, 9).ok());
  EXPECT_TRUE(agree(second, 2000, 7, 9).ok());
  const absl::Status fewer = agree(second, 1950, 8, 9);
  EXPECT_EQ(fewer.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* said : {"data.train", "1950 samples", "worker-0 had read 2000 samples"})
    EXPECT_TRUE(absl::StrContains(fewer.message(), said)) << fewer;
  const absl::Status other_eval = agree(second, 2000, 7, 10);
  EXPECT_TRUE(absl::StrContains(other_eval.message(), "data.eval")) << other_eval;
  EXPECT_TRUE(agree(first, 2000, 7, 9).ok()) << "a refusal changes nothing";
  // They had read a file that was still being written.
  Kill("worker-0");
  Kill("worker-1");
  Pass(seconds(8));
  const RegisterResponse third = JoinFollower();
  EXPECT_TRUE(agree(third, 2100, 11, 9).ok()) << "nothing was trained";
  // It is restarted under its name before it is known to be dead.
  const absl::StatusOr<RegisterResponse> restarted = ComeBack(third.node());
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_TRUE(agree(*restarted, 2200, 12, 9).ok()) << "no other worker has read the other data";
  Report(*restarted, {{0, 1, 10}});
  Kill(third.node());
  Pass(seconds(8));
  EXPECT_FALSE(agree(JoinFollower(), 2100, 11, 9).ok());
}

// A rebuilt scheduler, or one of a newer version, hears of steps before it hears of the data.
TEST_F(CoordinatorWorkersTest, DataIsAgreedOnDuringTraining) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const RegisterResponse second = JoinFollower();
  Report(first, {{0, 1, 10}});
  auto request = From<AgreeOnDataRequest>(first);
  request.mutable_data()->set_train(7);
  EXPECT_TRUE(ResultOf(Call(&Coordinator::AgreeOnData, request)).ok());
  request = From<AgreeOnDataRequest>(second);
  request.mutable_data()->set_train(8);
  const absl::Status other = ResultOf(Call(&Coordinator::AgreeOnData, request)).status();
  EXPECT_TRUE(absl::StrContains(other.message(), "worker-0 had read")) << other;
}

TEST_F(CoordinatorWorkersTest, SamplesAreCountedByRank) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse living = JoinFollower();
  const RegisterResponse victim = JoinFollower();
  Report(living, {{0, 10, 160}, {1, 10, 160}});
  Report(victim, {{2, 9, 144}, {3, 8, 128}});
  EXPECT_EQ(Status().samples(), 592u);
  EXPECT_EQ(Status().steps(), 8u);
  Kill(victim.node());
  Pass(seconds(8));
  // The dead worker never reported its last steps, but the servers have them.
  Report(living, {{0, 12, 192}, {1, 12, 192}, {2, 10, 160}, {3, 9, 144}});
  EXPECT_EQ(Status().samples(), 688u);
  EXPECT_EQ(Status().steps(), 9u);
  // An outdated report.
  Report(living, {{0, 11, 176}, {1, 12, 192}, {2, 10, 160}, {3, 9, 144}});
  EXPECT_EQ(Status().samples(), 688u);
}

TEST_F(CoordinatorWorkersTest, DeadWorkerShowsItsRanksUntilOthersTakeThem) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  JoinFollower();
  const RegisterResponse victim = JoinFollower();
  Report(victim, {{2, 9, 144}, {3, 8, 128}});
  const auto shown = [&] {
    std::map<uint32_t, uint64_t> steps;
    const GetStatusResponse status = Status();
    for (const NodeStatus& node : status.nodes()) {
      if (node.node() != victim.node()) continue;
      for (const RankProgress& rank : node.worker().ranks()) steps[rank.rank()] = rank.steps();
    }
    return steps;
  };
  const std::map<uint32_t, uint64_t> all = {{2, 9}, {3, 8}};
  EXPECT_EQ(shown(), all);
  Kill(victim.node());
  Pass(options_.lease + options_.worker_takeover_grace / 2);
  EXPECT_EQ(shown(), all);
  Pass(options_.worker_takeover_grace);
  EXPECT_TRUE(shown().empty());
  EXPECT_EQ(Status().samples(), 272u);
}

TEST_F(CoordinatorWorkersTest, ImpossibleProgressGivesUpNoRank) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const auto answer = GetAssignmentWhenReady(first);
  const auto all = RanksIn(answer);
  const RegisterResponse joiner = JoinFollower();
  ASSERT_EQ(RanksIn(GetAssignmentWhenReady(first, (**answer)->version())).size(), 2u);
  const std::map<uint32_t, uint64_t> given_up = {{2, all.at(2)}, {3, all.at(3)}};
  WorkerProgress progress;
  for (uint32_t rank = 0; rank < 5; ++rank) progress.add_ranks()->set_rank(rank);
  EXPECT_TRUE(absl::IsInvalidArgument(GiveUp(first, given_up, progress)));
  EXPECT_EQ(RanksOf(joiner), "");
  progress.mutable_ranks()->RemoveLast();
  EXPECT_TRUE(GiveUp(first, given_up, progress).ok());
  EXPECT_EQ(RanksOf(joiner), "2 3");
}

TEST_F(CoordinatorWorkersTest, RankThatItsHostHasNotHeardOfMovesOn) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const auto all = RanksIn(GetAssignmentWhenReady(first));
  const RegisterResponse second = JoinFollower();
  const auto asked = GetAssignmentWhenReady(second, (**GetAssignmentWhenReady(second))->version());
  ASSERT_TRUE(GiveUp(first, {{2, all.at(2)}}).ok());
  ASSERT_EQ(RanksIn(asked).size(), 1u);
  // The second worker gets rank 3 too, and loses it to the third before it asks again.
  ASSERT_TRUE(GiveUp(first, {{3, all.at(3)}}).ok());
  const RegisterResponse third = JoinFollower();
  GetAssignmentWhenReady(third);
  EXPECT_EQ(RanksOf(third), "");
  const auto again = GetAssignmentWhenReady(second, (**asked)->version());
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ(RanksIn(again), RanksIn(asked));
  EXPECT_EQ(RanksOf(second), "2");
  EXPECT_EQ(RanksOf(third), "3");
}

TEST_F(CoordinatorWorkersTest, RankOfALostAnswerMovesOnAfterARestart) {
  BeginWithStore(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  // The scheduler dies before the answer arrives.
  ASSERT_EQ(RanksIn(GetAssignmentWhenReady(first)).size(), 4u);
  Restart(milliseconds(500));
  const RegisterResponse joiner = JoinFollower();
  EXPECT_EQ(RanksOf(joiner), "");
  EXPECT_EQ(RanksIn(GetAssignmentWhenReady(first)).size(), 2u);
  EXPECT_EQ(RanksOf(joiner), "2 3");
}

TEST_F(CoordinatorWorkersTest, RankThatItsHostHasOnlyLookedUpMovesOn) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower(/*ready=*/false);
  // pawl-worker asks for the number of ranks, and takes them over once it has read its data.
  EXPECT_EQ(RanksOf(first), "0 1 2 3");
  const RegisterResponse joiner = JoinFollower();
  GetAssignmentWhenReady(first);
  EXPECT_EQ(Status().nodes(1).logical_workers_size() + Status().nodes(2).logical_workers_size(), 4);
  EXPECT_NE(RanksOf(joiner), "");
}

TEST_F(CoordinatorWorkersTest, AnswerWithANewRankWaitsForItsSave) {
  BeginWithStore(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  HoldSaves();
  const auto answer = GetAssignmentWhenReady(first);
  EXPECT_FALSE(answer->has_value()) << "a restarted scheduler would take it for unheard";
  ReleaseSaves();
  EXPECT_TRUE(answer->has_value());
  HoldSaves();
  EXPECT_TRUE(GetAssignmentWhenReady(first)->has_value()) << "it has no news";
}

TEST_F(CoordinatorWorkersTest, MetricsOfTheProgramAreShownAndSurviveARestart) {
  BeginWithStore(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse worker = JoinFollower();
  const auto report = [&](uint64_t step, double value) {
    auto request = From<HeartbeatRequest>(worker);
    UserMetric& metric = *request.mutable_worker()->add_metrics();
    metric.set_name("ctr");
    metric.set_step(step);
    metric.set_value(value);
    return coordinator_->Heartbeat(request).status();
  };
  ASSERT_TRUE(report(5, 0.5).ok());
  ASSERT_TRUE(report(4, 0.75).ok());
  // Heartbeats do not cause a save of their own.
  Pass(seconds(60));
  Restart(milliseconds(500));
  ASSERT_EQ(Status().metrics_size(), 1);
  EXPECT_EQ(Status().metrics(0).name(), "ctr");
  EXPECT_EQ(Status().metrics(0).step(), 5u);
  EXPECT_EQ(Status().metrics(0).value(), 0.5);
  const GetStatusResponse status = Status();
  for (const NodeStatus& node : status.nodes()) EXPECT_EQ(node.worker().metrics_size(), 0);
  ASSERT_TRUE(report(6, std::nan("")).ok());
  EXPECT_EQ(Status().metrics(0).step(), 5u);
}

TEST_F(CoordinatorWorkersTest, AssignmentsSurviveARestart) {
  BeginWithStore(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const auto all = GetAssignmentWhenReady(first);
  const RegisterResponse joiner = JoinFollower();
  const auto fewer = GetAssignmentWhenReady(first, (**all)->version());
  ASSERT_EQ(RanksIn(fewer).size(), 2u);
  Restart(milliseconds(500));
  Pass(seconds(1));
  EXPECT_FALSE(GetAssignmentWhenReady(first, 1000)->has_value());
  EXPECT_EQ(RanksOf(first), "0 1");
  EXPECT_GE((**GetAssignment(first))->version(), (**fewer)->version());
  ASSERT_TRUE(GiveUp(first, {{2, RanksIn(all).at(2)}, {3, RanksIn(all).at(3)}}).ok());
  EXPECT_EQ(RanksOf(joiner), "2 3");
  EXPECT_GT(RanksIn(GetAssignmentWhenReady(joiner)).at(3), RanksIn(all).at(3));
}

}  // namespace
}  // namespace pawl
