// Checkpoints and beginning with one, as the whole Coordinator directs them.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "scheduler/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::seconds;

class CoordinatorCheckpointTest : public CoordinatorFixture {
 protected:
  struct Written {
    std::string dir;
    CheckpointManifest manifest;
    uint32_t keep = 0;
    absl::AnyInvocable<void(absl::StatusOr<std::string>)> done;
  };

  // Two servers and a worker train, with `more` in the job.
  void Train(const std::string& more, const std::function<void(Coordinator::Options&)>& change = nullptr) {
    Begin(absl::StrCat(kTraining, more), 2, 1, [&](Coordinator::Options& options) {
      options.write_checkpoint = [this](const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                                        absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
        written_.push_back({dir, std::move(manifest), keep, std::move(done)});
      };
      if (change != nullptr) change(options);
    });
    for (int i = 0; i < 2; ++i) server_nodes_.push_back(Join(SERVER_ROLE));
    worker_ = Join(WORKER_ROLE);
    SetAllParts();
    servers_.TakeCalls();
  }
  // Each server has written its share of the 8 partitions.
  void SetAllParts() {
    const RoutingTable routing = Routing();
    for (int server = 0; server < routing.servers_size(); ++server) {
      CheckpointOnServerResponse parts;
      for (int p = 0; p < routing.primary_size(); ++p) {
        if (routing.primary(p) != static_cast<uint32_t>(server)) continue;
        CheckpointPart& part = *parts.add_parts();
        part.set_partition(static_cast<uint32_t>(p));
        part.set_bytes(100 + static_cast<uint64_t>(p));
      }
      servers_.SetParts(routing.servers(server).address(), parts);
    }
  }
  // The servers say how far they are.
  void Reach(uint64_t step) {
    for (const RegisterResponse& server : server_nodes_) {
      HeartbeatRequest request;
      request.set_node(server.node());
      request.set_incarnation(server.incarnation());
      request.mutable_server()->set_step(step);
      ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
    }
    ASSERT_TRUE(Beat(worker_).ok());
    clock_.Advance(kTickInterval);
    coordinator_->Tick();
  }
  Answer<CheckpointResponse> Ask(const std::string& dir = "") {
    auto answer = NewAnswer<CheckpointResponse>();
    CheckpointRequest request;
    request.set_dir(dir);
    ticket_ = coordinator_->Checkpoint(request, Into(answer));
    return answer;
  }

  std::vector<RegisterResponse> server_nodes_;
  RegisterResponse worker_;
  std::vector<Written> written_;
};

TEST_F(CoordinatorCheckpointTest, ThePartsOfAllServersAreOneManifest) {
  Train("checkpoint { dir: '/c' every_steps: 10 keep: 2 }");
  Reach(0);
  EXPECT_EQ(written_.size(), 0u);
  Reach(5);
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Checkpoint 10", "s:2 Checkpoint 10"}));
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/c");
  EXPECT_EQ(written_[0].keep, 2u);
  const CheckpointManifest& manifest = written_[0].manifest;
  EXPECT_EQ(manifest.job_id(), 99u);
  EXPECT_EQ(manifest.job_name(), "flights");
  EXPECT_EQ(manifest.step(), 10u);
  ASSERT_EQ(manifest.parts_size(), 8);
  for (uint32_t p = 0; p < 8; ++p) EXPECT_EQ(manifest.parts(static_cast<int>(p)).partition(), p);
  Job job;
  ASSERT_TRUE(job.ParseFromString(manifest.job()));
  EXPECT_EQ(job.partitions(), 8u);
  SchedulerState state;
  ASSERT_TRUE(state.ParseFromString(manifest.scheduler_state()));
  EXPECT_GE(state.membership().last_incarnation(), worker_.incarnation());
  EXPECT_EQ(Status().checkpoint().under_way_step(), 10u);
  written_[0].done(std::string("/c/flights-10"));
  EXPECT_EQ(Status().checkpoint().completed(), 1u);
  EXPECT_EQ(Status().checkpoint().last_step(), 10u);
  EXPECT_EQ(Status().checkpoint().last_folder(), "/c/flights-10");
}

TEST_F(CoordinatorCheckpointTest, WhoAsksIsAnsweredWhenItIsWritten) {
  Train("");
  Reach(5);
  const auto no_folder = Ask();
  ASSERT_TRUE(no_folder->has_value());
  EXPECT_EQ((*no_folder)->status().code(), absl::StatusCode::kFailedPrecondition);
  const auto answer = Ask("/asked");
  const auto another = Ask("/asked");
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].keep, 0u);
  EXPECT_FALSE(answer->has_value());
  written_[0].done(std::string("/asked/flights-7"));
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_EQ((**answer)->folder(), "/asked/flights-7");
  EXPECT_EQ((**answer)->step(), 7u);
  EXPECT_TRUE(another->has_value());
}

TEST_F(CoordinatorCheckpointTest, AStepThatIsPassedIsReplacedByALaterOne) {
  Train("");
  Reach(5);
  servers_.FailNext("s:2 Checkpoint 7", absl::OutOfRangeError("step 7 is reached"));
  const auto answer = Ask("/asked");
  Reach(5);
  EXPECT_TRUE(written_.empty());
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 8u);
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
}

TEST_F(CoordinatorCheckpointTest, PartitionsThatMoveDoNotPutItOff) {
  Train("");
  Reach(5);
  for (const int step : {7, 8, 9, 10}) {
    servers_.FailNext(absl::StrCat("s:2 Checkpoint ", step), absl::AbortedError("the partition has moved"));
  }
  const auto answer = Ask("/asked");
  for (int i = 0; i < 5; ++i) Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 11u);
}

TEST_F(CoordinatorCheckpointTest, AFailureIsToldAndCountedAndTheJobGoesOn) {
  Train("");
  Reach(5);
  servers_.FailNext("s:2 Checkpoint 7", absl::ResourceExhaustedError("the disk is full"));
  const auto servers = Ask("/asked");
  Reach(5);
  ASSERT_TRUE(servers->has_value());
  EXPECT_EQ((*servers)->status().code(), absl::StatusCode::kResourceExhausted);
  const auto manifest = Ask("/asked");
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(absl::FailedPreconditionError("a part is not there"));
  ASSERT_TRUE(manifest->has_value());
  EXPECT_EQ((*manifest)->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Status().checkpoint().failed(), 2u);
  EXPECT_NE(Status().checkpoint().last_failure().find("a part is not there"), std::string::npos);
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(CoordinatorCheckpointTest, AnEvaluationAtOrAfterTheCutIsNotInIt) {
  Train("evaluation { early_stopping { patience: 3 } }");
  const auto evaluate = [&](uint64_t number, bool good) {
    for (uint32_t rank = 0; rank < 4; ++rank) Report(worker_, rank, number, good);
  };
  Reach(10);
  evaluate(1, false);  // at step 10
  Reach(18);
  servers_.Hold();
  Ask("/asked");
  Reach(18);  // of step 20
  servers_.Release();
  ASSERT_EQ(written_.size(), 1u);
  SchedulerState state;
  ASSERT_TRUE(state.ParseFromString(written_[0].manifest.scheduler_state()));
  ASSERT_EQ(state.evaluations().results_size(), 1);
  EXPECT_EQ(state.evaluations().next(), 2u);
  written_[0].done(std::string("/asked/a"));

  servers_.Hold();
  Ask("/asked");
  Reach(27);  // of step 29
  servers_.Release();
  ASSERT_EQ(written_.size(), 2u);
  written_[1].done(std::string("/asked/b"));
  servers_.Hold();
  Ask("/asked");
  Reach(28);           // of step 30
  evaluate(2, false);  // at step 20
  evaluate(3, false);  // at step 30
  servers_.Release();
  ASSERT_EQ(written_.size(), 3u);
  EXPECT_EQ(written_[2].manifest.step(), 30u);
  ASSERT_TRUE(state.ParseFromString(written_[2].manifest.scheduler_state()));
  EXPECT_EQ(state.evaluations().results_size(), 2);
  EXPECT_EQ(state.evaluations().next(), 3u);
  EXPECT_EQ(state.evaluations().best().evaluation(), 1u);
  EXPECT_TRUE(state.evaluations().best_is_kept());
  EXPECT_EQ(state.evaluations().without_improvement(), 1u);
}

class EndCheckpointTest : public CoordinatorCheckpointTest {
 protected:
  // The end of a training of 20 steps.
  void FinishAll() {
    for (const RegisterResponse& server : server_nodes_) {
      InspectResponse response;
      response.mutable_counters()->set_step(20);
      servers_.SetInspection(NodeNamed(server.node()).request.address(), response);
    }
    ASSERT_TRUE(Finish(worker_).ok());
  }
  std::string EndEvent() {
    auto answer = NewAnswer<ListEventsResponse>();
    coordinator_->ListEvents(ListEventsRequest(), Into(answer));
    Save();
    if (!answer->has_value() || !(*answer)->ok()) return "no answer";
    for (const ClusterEvent& event : (**answer)->events()) {
      if (event.kind() == CHECKPOINT_OF_END) return event.text();
    }
    return "";
  }
};

TEST_F(EndCheckpointTest, ItIsMadeBeforeTheJobIsOver) {
  Train("checkpoint { dir: '/c' keep: 2 }");
  FinishAll();
  EXPECT_EQ(servers_.TakeCalls(),
            (std::vector<std::string>{"s:1 Inspect counters", "s:2 Inspect counters", "s:1 Checkpoint 20 of the end",
                                      "s:2 Checkpoint 20 of the end"}));
  EXPECT_EQ(Status().state(), FINISHING);
  EXPECT_TRUE(reports_.empty());
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/c");
  EXPECT_EQ(written_[0].keep, 2u);
  EXPECT_TRUE(written_[0].manifest.of_end());
  EXPECT_EQ(written_[0].manifest.step(), 20u);
  written_[0].done(std::string("/c/flights-20-end"));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/flights-20-end");
  EXPECT_EQ(Status().checkpoint().completed(), 1u);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.checkpoint().end_folder(), "/c/flights-20-end");
  EXPECT_EQ(EndEvent(), "/c/flights-20-end");
}

TEST_F(EndCheckpointTest, ItHasTheParametersThatEarlyStoppingHasRestored) {
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }");
  for (uint32_t rank = 0; rank < 4; ++rank) Report(worker_, rank, 1, true);
  for (uint32_t rank = 0; rank < 4; ++rank) Report(worker_, rank, 2, false);
  servers_.TakeCalls();
  FinishAll();
  const std::vector<std::string> calls = servers_.TakeCalls();
  ASSERT_EQ(calls.size(), 6u);
  EXPECT_EQ(calls[1], "s:2 RestoreBest");
  EXPECT_EQ(calls[5], "s:2 Checkpoint 20 of the end");
  // A job that goes on from here makes the evaluation of step 20 again: it may have another patience.
  SchedulerState state;
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(state.ParseFromString(written_[0].manifest.scheduler_state()));
  EXPECT_EQ(state.evaluations().results_size(), 1);
  EXPECT_EQ(state.evaluations().next(), 2u);
  EXPECT_EQ(state.evaluations().best().evaluation(), 1u);
  EXPECT_TRUE(state.evaluations().best_is_kept());
  EXPECT_FALSE(state.evaluations().stop_training());
}

// What is kept in the partitions is of the end: a longer job must know it as the best, also if it has no pause there.
TEST_F(EndCheckpointTest, TheEvaluationOfTheEndCountsIfItIsTheBest) {
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }");
  for (uint32_t rank = 0; rank < 4; ++rank) Report(worker_, rank, 1, false);
  for (uint32_t rank = 0; rank < 4; ++rank) Report(worker_, rank, 2, true);
  FinishAll();
  SchedulerState state;
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(state.ParseFromString(written_[0].manifest.scheduler_state()));
  ASSERT_EQ(state.evaluations().results_size(), 2);
  EXPECT_EQ(state.evaluations().results(1).step(), 20u);
  EXPECT_EQ(state.evaluations().best().step(), 20u);
  EXPECT_TRUE(state.evaluations().best_is_kept());
  EXPECT_FALSE(state.evaluations().stop_training());
  EXPECT_EQ(state.evaluations().next(), 2u);
}

TEST_F(EndCheckpointTest, AFailureIsToldAndTheJobCompletesWithoutIt) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::PermissionDeniedError("the disk is read-only"));
  FinishAll();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "");
  EXPECT_NE(Status().checkpoint().end_failure().find("the disk is read-only"), std::string::npos);
  EXPECT_NE(EndEvent().find("the disk is read-only"), std::string::npos);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].status.checkpoint().end_failure().find("the disk is read-only"), std::string::npos);
}

// The digest can be had from the checkpoint; the model from nothing else.
TEST_F(EndCheckpointTest, AResultThatCannotBeGatheredCostsTheModelNot) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Inspect", absl::InternalError("no digest"));
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("no digest"), std::string::npos) << Status().failure();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.checkpoint().end_folder(), "/c/e");
}

TEST_F(EndCheckpointTest, WhatPassesIsTriedAgain) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::AbortedError("a partition has moved"));
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::UnavailableError("away"));
  FinishAll();
  EXPECT_TRUE(written_.empty());
  Pass(kEndCheckpointPause + kTickInterval * 3);
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(absl::UnavailableError("another checkpoint is being written"));
  EXPECT_EQ(Status().state(), FINISHING);
  // Not at every tick.
  Pass(kEndCheckpointPause - kTickInterval * 2);
  EXPECT_EQ(written_.size(), 1u);
  Pass(kTickInterval * 3);
  ASSERT_EQ(written_.size(), 2u);
  written_[1].done(std::string("/c/e"));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
}

// As a full disk that somebody clears, or a share that is mounted anew.
TEST_F(EndCheckpointTest, NoErrorThatMayPassCostsTheModel) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::ResourceExhaustedError("the disk is full"));
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::InternalError("stale file handle"));
  FinishAll();
  servers_.TakeCalls();
  Pass(kEndCheckpointErrorPause - kTickInterval * 2);
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "all of it would be written again";
  Pass(kTickInterval * 3);
  EXPECT_FALSE(servers_.TakeCalls().empty());
  EXPECT_EQ(Status().state(), FINISHING);
  Pass(kEndCheckpointErrorPause + kTickInterval);
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(absl::DataLossError("input/output error"));
  Pass(kEndCheckpointErrorPause + kTickInterval);
  ASSERT_EQ(written_.size(), 2u);
  written_[1].done(std::string("/c/e"));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/e");
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
}

TEST_F(EndCheckpointTest, TheJobDoesNotWaitForItForever) {
  Train("checkpoint { dir: '/c' }");
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  Pass(kEndCheckpointTimeout - seconds(1));
  EXPECT_EQ(Status().state(), FINISHING);
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_NE(Status().checkpoint().end_failure().find("1800 s, and may still become so"), std::string::npos)
      << Status().checkpoint().end_failure();
  // Too late.
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().checkpoint().end_folder(), "");
}

TEST_F(EndCheckpointTest, TheOneUnderWayDoesNotDisturbIt) {
  Train("checkpoint { dir: '/c' every_steps: 10 }");
  servers_.FailNext("s:1 Checkpoint 20", absl::UnavailableError("not yet"));
  Reach(18);
  ASSERT_EQ(Status().checkpoint().under_way_step(), 20u);
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_TRUE(written_[0].manifest.of_end());
  // The server is asked again for the one before, too.
  servers_.FailNext("s:1 Checkpoint 20", absl::AbortedError("the end's was asked for"));
  Pass(kTickInterval);
  const std::vector<std::string> calls = servers_.TakeCalls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "s:1 Checkpoint 20"), 2);
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/e");
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(EndCheckpointTest, AServerThatDiesMeanwhileIsReplaced) {
  Train("checkpoint { dir: '/c' } replicas: 2");
  Pass(seconds(3));
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::UnavailableError("it is dead"));
  FinishAll();
  EXPECT_TRUE(written_.empty());
  Kill(server_nodes_[1].node());
  servers_.SetAdopted("s:2", 0);
  CheckpointOnServerResponse all;
  for (uint32_t p = 0; p < 8; ++p) all.add_parts()->set_partition(p);
  servers_.SetParts("s:1", all);
  Pass(seconds(3));
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(EndCheckpointTest, ASchedulerThatIsRestartedMeanwhileMakesIt) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  Train("checkpoint { dir: '/c' }");
  FinishAll();
  Save();
  ASSERT_EQ(written_.size(), 1u);
  written_.clear();
  Restart();
  Pass(seconds(1));
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_TRUE(written_[0].manifest.of_end());
  written_[0].done(std::string("/c/e"));
  Save();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Saved().checkpoint().end_folder(), "/c/e");
}

TEST_F(EndCheckpointTest, WhoWaitsForOneInTheJobsFolderGetsIt) {
  Train("checkpoint { dir: '/c' }");
  const auto answer = Ask();
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(std::string("/c/e"));
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_EQ((**answer)->folder(), "/c/e");
}

// The end is in the job's own folder alone.
TEST_F(EndCheckpointTest, WhoWaitsForOneElsewhereIsToldAtOnce) {
  Train("checkpoint { dir: '/c' }");
  Reach(5);
  servers_.FailNext("s:1 Checkpoint 7", absl::UnavailableError("not yet"));
  const auto begun = Ask("/begun");
  Reach(5);
  ASSERT_EQ(Status().checkpoint().under_way_step(), 7u);
  const auto wanted = Ask("/wanted");
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(wanted->has_value());
  EXPECT_EQ((*wanted)->status().code(), absl::StatusCode::kFailedPrecondition) << (*wanted)->status();
  EXPECT_FALSE(begun->has_value()) << "it may still be written";
  servers_.FailNext("s:1 Checkpoint 7", absl::AbortedError("the end's was asked for"));
  Pass(kTickInterval);
  ASSERT_TRUE(begun->has_value());
  EXPECT_EQ((*begun)->status().code(), absl::StatusCode::kAborted) << (*begun)->status();
  EXPECT_EQ(Status().state(), FINISHING);
}

TEST_F(EndCheckpointTest, AJobThatHadNothingLeftToTrainHasTheOneThatItBeganWith) {
  const std::string name = "flights-step-00000000000000000020-end";
  Train("checkpoint { dir: '/c' }", [&](Coordinator::Options& options) {
    StoredRestore restore;
    restore.set_dir("/c");
    restore.set_name(name);
    restore.set_step(20);
    options.restore = restore;
  });
  FinishAll();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/" + name);
}

TEST_F(EndCheckpointTest, EarlyStoppingThatIsTakenOutOnARestoreThrowsNothingAway) {
  Train("", [](Coordinator::Options& options) {
    options.restore.emplace().set_step(10);
    StoredEvaluations& evaluations = *options.restore_state.mutable_evaluations();
    evaluations.set_next(2);
    evaluations.mutable_best()->set_evaluation(1);
    evaluations.set_best_is_kept(true);
    evaluations.set_stop_training(true);
  });
  const auto answer = Report(worker_, 0, 2, true);
  for (uint32_t rank = 1; rank < 4; ++rank) Report(worker_, rank, 2, true);
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_FALSE((**answer)->stop());
  FinishAll();
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Inspect", "s:2 Inspect"}));
  EXPECT_EQ(reports_.at(0).evaluation->evaluation(), 2u);
}

TEST_F(EndCheckpointTest, AJobWithoutAFolderHasNone) {
  Train("");
  FinishAll();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(EndEvent(), "");
}

class RestoreTest : public CoordinatorCheckpointTest {
 protected:
  void TrainFromCheckpoint(const std::string& more = "") {
    servers_.Hold();
    Train(more, [](Coordinator::Options& options) {
      StoredRestore restore;
      restore.set_dir("/c");
      restore.set_name("flights-40");
      restore.set_step(40);
      options.restore = restore;
      options.restore_state.mutable_membership()->set_last_incarnation(1000);
      StoredTable& table = *options.restore_state.mutable_tables()->add_tables();
      table.mutable_spec()->set_name("rows");
      table.mutable_spec()->set_id(7);
      table.mutable_spec()->set_kind(SPARSE);
      table.mutable_spec()->set_row_width(4);
      table.set_ready(true);
      options.restore_state.mutable_tables()->set_last_id(7);
      options.restore_state.mutable_evaluations()->set_next(5);
    });
  }
};

TEST_F(RestoreTest, NobodyTrainsBeforeAllServersHaveLoaded) {
  TrainFromCheckpoint();
  EXPECT_GT(worker_.incarnation(), 1000u);
  EXPECT_EQ(RanksOf(worker_), "");
  EXPECT_EQ(Tables(), 0);
  EXPECT_EQ(Status().state(), STARTING);
  servers_.Release();
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  EXPECT_EQ(Tables(), 1);
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(Status().checkpoint().restored_from(), "/c/flights-40");
  // No step is asked for that the job has behind it.
  Ask("/asked");
  Reach(0);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 41u);
}

TEST_F(RestoreTest, ANewTableWaitsUntilAllIsLoaded) {
  TrainFromCheckpoint();
  const auto answer = CreateTable("another");
  EXPECT_FALSE(answer->has_value());
  servers_.Release();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((**answer)->table().id(), 8u);
}

TEST_F(RestoreTest, OtherReplicasAreCopiedOnceThePartitionsAreLoaded) {
  TrainFromCheckpoint("replicas: 2");
  Pass(seconds(2));
  for (const Replicas& set : Sets()) EXPECT_EQ(ReplicasText(set).find(' '), std::string::npos) << ReplicasText(set);
  servers_.Release();
  Pass(seconds(5));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u) << ReplicasText(set);
}

TEST_F(RestoreTest, AServerThatCannotLoadFailsTheJob) {
  servers_.FailNext("s:1 LoadCheckpoint /c/flights-40", absl::DataLossError("p3.part is damaged at offset 17"));
  TrainFromCheckpoint();
  servers_.Release();
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("p3.part is damaged at offset 17"), std::string::npos) << Status().failure();
}

TEST_F(RestoreTest, ASchedulerThatIsRestartedMeanwhileGoesOnLoading) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  TrainFromCheckpoint();
  Save();
  Restart();
  Pass(seconds(1));
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  EXPECT_EQ(Status().checkpoint().restored_step(), 40u);
}

TEST_F(CoordinatorCheckpointTest, AJobThatOnlyServesTablesHasNone) {
  Begin("name: 'tables' partitions: 4 optimizer { sgd { learning_rate: 0.1 } }", 1, 0, [&](Coordinator::Options& options) {
    options.write_checkpoint = [](const std::string&, CheckpointManifest, uint32_t,
                                  absl::AnyInvocable<void(absl::StatusOr<std::string>)>) {};
  });
  Join(SERVER_ROLE);
  ASSERT_EQ(Status().state(), RUNNING);
  auto refused = Ask("/asked");
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->status().code(), absl::StatusCode::kFailedPrecondition) << (*refused)->status();
  // A program with its own training loop.
  Join(WORKER_ROLE, {0});
  EXPECT_FALSE(Ask("/asked")->has_value());
}

TEST_F(CoordinatorCheckpointTest, WhatNobodyWaitsForAnyMoreIsNotBegun) {
  Train("");
  const auto first = Ask("/asked");
  const Ticket first_ticket = ticket_;
  const auto second = Ask("/asked");
  const Ticket second_ticket = ticket_;
  const auto other = Ask("/other");
  coordinator_->Cancel(first_ticket, /*deadline_passed=*/false);
  EXPECT_EQ((*first)->status().code(), absl::StatusCode::kCancelled);
  coordinator_->Cancel(second_ticket, /*deadline_passed=*/true);
  EXPECT_EQ((*second)->status().code(), absl::StatusCode::kDeadlineExceeded);
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/other");
}

TEST_F(CoordinatorCheckpointTest, AFolderThatCannotBeEndsItsCheckpointAtOnce) {
  Train("");
  const auto bad = Ask("/etc/passwd/x");
  const auto good = Ask("/good");
  servers_.FailNext("s:1 Checkpoint 7", FileError("mkdir", "/etc/passwd/x", ENOTDIR));
  Reach(5);
  ASSERT_TRUE(bad->has_value());
  EXPECT_EQ((*bad)->status().code(), absl::StatusCode::kInvalidArgument) << (*bad)->status();
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/good");
}

}  // namespace
}  // namespace pawl
