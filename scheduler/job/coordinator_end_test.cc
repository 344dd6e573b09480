// The end of a job and its final checkpoint, with the whole Coordinator.
#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/testing/coordinator_checkpoint_fixture.h"

namespace pawl {
namespace {

using std::chrono::seconds;

class EndCheckpointTest : public CoordinatorCheckpointTest {
 protected:
  // Ends a training of 20 steps.
  void FinishAll() {
    for (const RegisterResponse& server : server_nodes_) {
      InspectResponse response;
      response.mutable_counters()->set_step(20);
      servers_.SetInspection(NodeNamed(server.node()).request.address(), response);
    }
    ASSERT_TRUE(Finish(worker_).ok());
  }
  std::vector<std::string> EndEvents() {
    const auto answer = ResultOf(Call(&Coordinator::ListEvents, ListEventsRequest()));
    if (!answer.ok()) return {"no answer"};
    std::vector<std::string> texts;
    for (const ClusterEvent& event : answer->events()) {
      if (event.kind() == FINAL_CHECKPOINT_ENDED) texts.push_back(event.text());
    }
    return texts;
  }
  std::string EndEvent() {
    const std::vector<std::string> texts = EndEvents();
    return texts.empty() ? "" : texts.front();
  }
};

TEST_F(EndCheckpointTest, FinalCheckpointIsMadeBeforeTheJobCompletes) {
  Train("checkpoint { dir: '/c' keep: 2 }");
  FinishAll();
  EXPECT_EQ(
      servers_.TakeCalls(),
      (std::vector<std::string>{"s:1 Inspect counters", "s:2 Inspect counters",
                                "s:1 Checkpoint 20 of the end", "s:2 Checkpoint 20 of the end"}));
  EXPECT_EQ(Status().state(), FINISHING);
  EXPECT_TRUE(reports_.empty());
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/c");
  EXPECT_EQ(written_[0].keep, 2u);
  EXPECT_TRUE(written_[0].manifest.is_final());
  EXPECT_EQ(written_[0].manifest.step(), 20u);
  written_[0].done(std::string("/c/flights-20-end"));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/flights-20-end");
  EXPECT_EQ(Status().checkpoint().completed(), 1u);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.checkpoint().end_folder(), "/c/flights-20-end");
  EXPECT_EQ(EndEvent(), "/c/flights-20-end");
}

TEST_F(EndCheckpointTest, FinalCheckpointHasTheRestoredBestParameters) {
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }");
  ReportAll(worker_, 1, true);
  ReportAll(worker_, 2, false);
  servers_.TakeCalls();
  FinishAll();
  const std::vector<std::string> calls = servers_.TakeCalls();
  ASSERT_EQ(calls.size(), 6u);
  EXPECT_EQ(calls[1], "s:2 RestoreBest");
  EXPECT_EQ(calls[5], "s:2 Checkpoint 20 of the end");
  // A job restored from here repeats the evaluation of step 20: its patience may differ.
  SchedulerState state;
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(state.ParseFromString(written_[0].manifest.scheduler_state()));
  EXPECT_EQ(state.evaluations().results_size(), 1);
  EXPECT_EQ(state.evaluations().next(), 2u);
  EXPECT_EQ(state.evaluations().best().evaluation(), 1u);
  EXPECT_TRUE(state.evaluations().best_is_kept());
  EXPECT_FALSE(state.evaluations().stop_training());
}

// The kept parameters are those of the end: a longer job must know them as the best even if it does
// not evaluate there.
TEST_F(EndCheckpointTest, EvaluationOfTheEndCountsIfItIsBest) {
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }");
  ReportAll(worker_, 1, false);
  ReportAll(worker_, 2, true);
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

// The former job had more patience, and its results would stop this one at once.
TEST_F(EndCheckpointTest, FormerEvaluationsAreNotJudgedAgain) {
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }",
        [](Coordinator::Options& options) {
          options.restore.emplace().set_step(10);
          StoredEvaluations& evaluations = *options.restore_state.mutable_evaluations();
          for (uint64_t number = 1; number <= 3; ++number) {
            EvaluationResult& result = *evaluations.add_results();
            result.set_evaluation(number);
            result.set_step(3 * number);
            result.set_logloss(number == 2 ? 0.9 : 0.8);
          }
          *evaluations.mutable_best() = evaluations.results(2);
          evaluations.set_next(4);
          evaluations.set_best_is_kept(true);
        });
  FinishAll();
  SchedulerState state;
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(state.ParseFromString(written_[0].manifest.scheduler_state()));
  EXPECT_EQ(state.evaluations().results_size(), 3);
  EXPECT_EQ(state.evaluations().best().evaluation(), 3u);
  EXPECT_EQ(state.evaluations().next(), 4u);
  EXPECT_FALSE(state.evaluations().stop_training());
}

TEST_F(EndCheckpointTest, JobCompletesWithoutAFailedCheckpoint) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Checkpoint 20 of the end",
                    absl::PermissionDeniedError("the disk is read-only"));
  FinishAll();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "");
  EXPECT_NE(Status().checkpoint().end_failure().find("the disk is read-only"), std::string::npos);
  EXPECT_NE(EndEvent().find("the disk is read-only"), std::string::npos);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].status.checkpoint().end_failure().find("the disk is read-only"),
            std::string::npos);
}

// The checkpoint contains the digest too; nothing else contains the model.
TEST_F(EndCheckpointTest, CheckpointSurvivesAFailedInspection) {
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

TEST_F(EndCheckpointTest, TransientErrorIsRetried) {
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

// Such as a full disk that is cleared, or a share that is mounted again.
TEST_F(EndCheckpointTest, EveryTransientErrorIsRetried) {
  Train("checkpoint { dir: '/c' }");
  servers_.FailNext("s:2 Checkpoint 20 of the end",
                    absl::ResourceExhaustedError("the disk is full"));
  servers_.FailNext("s:2 Checkpoint 20 of the end", absl::InternalError("stale file handle"));
  FinishAll();
  servers_.TakeCalls();
  Pass(kEndCheckpointErrorPause - kTickInterval * 2);
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "everything would be written again";
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

TEST_F(EndCheckpointTest, JobStopsWaitingAfterTheTimeout) {
  Train("checkpoint { dir: '/c' }");
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  Pass(kEndCheckpointTimeout - seconds(1));
  EXPECT_EQ(Status().state(), FINISHING);
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_NE(Status().checkpoint().end_failure().find("1800 s; it may still complete"),
            std::string::npos)
      << Status().checkpoint().end_failure();
  // Too late.
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().checkpoint().end_folder(), "");
}

TEST_F(EndCheckpointTest, TimeoutGrowsWithTheModel) {
  constexpr seconds kWriting{1000};
  Train("checkpoint { dir: '/c' }");
  auto request = From<HeartbeatRequest>(nodes_[0].registration);
  request.mutable_server()->set_parameter_bytes(kMinReadBytesPerSecond * kWriting.count());
  ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
  FinishAll();
  Pass(kEndCheckpointTimeout + kWriting - seconds(1));
  EXPECT_EQ(Status().state(), FINISHING);
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), COMPLETED);
}

// The answer to the last one was lost. A node that repeats it must not wait for a job that has
// ended.
TEST_F(EndCheckpointTest, RepeatedFinishWorkOfACompletedJobIsAnswered) {
  Train("");
  FinishAll();
  ASSERT_EQ(Status().state(), COMPLETED);
  EXPECT_TRUE(Finish(worker_).ok());
}

TEST_F(EndCheckpointTest, CheckpointInProgressDoesNotDisturbIt) {
  Train("checkpoint { dir: '/c' every_steps: 10 }");
  servers_.FailNext("s:1 Checkpoint 20", absl::UnavailableError("not yet"));
  Reach(18);
  ASSERT_EQ(Status().checkpoint().in_progress_step(), 20u);
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_TRUE(written_[0].manifest.is_final());
  // The former checkpoint is requested again too.
  servers_.FailNext("s:1 Checkpoint 20", absl::AbortedError("the end's was asked for"));
  Pass(kTickInterval);
  const std::vector<std::string> calls = servers_.TakeCalls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "s:1 Checkpoint 20"), 2);
  written_[0].done(std::string("/c/e"));
  EXPECT_EQ(Status().checkpoint().end_folder(), "/c/e");
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(EndCheckpointTest, ServerThatDiesMeanwhileIsReplaced) {
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

TEST_F(EndCheckpointTest, RestartedSchedulerMakesIt) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  Train("checkpoint { dir: '/c' }");
  FinishAll();
  Save();
  ASSERT_EQ(written_.size(), 1u);
  written_.clear();
  Restart();
  Pass(seconds(1));
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_TRUE(written_[0].manifest.is_final());
  written_[0].done(std::string("/c/e"));
  Save();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Saved().checkpoint().end_folder(), "/c/e");
}

// Only the digest is missing: the checkpoint is not written again.
TEST_F(EndCheckpointTest, RestartDuringInspectionKeepsTheCheckpoint) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  Train("checkpoint { dir: '/c' } evaluation { early_stopping { patience: 1 } }");
  ReportAll(worker_, 1, true);
  ReportAll(worker_, 2, false);
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  servers_.TakeCalls();
  servers_.Hold();
  written_[0].done(std::string("/c/e"));
  written_.clear();
  Save();
  ASSERT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Inspect", "s:2 Inspect"}));
  ASSERT_EQ(Saved().state(), FINISHING);
  ASSERT_EQ(Saved().checkpoint().end_folder(), "/c/e");

  Restart();
  EXPECT_EQ(Status().state(), FINISHING);
  Pass(seconds(1));
  // The stage is not saved: the best parameters are restored again, which changes nothing.
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 RestoreBest", "s:2 RestoreBest",
                                                            "s:1 Inspect", "s:2 Inspect"}));
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(Status().state(), COMPLETED);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.checkpoint().end_folder(), "/c/e");
  EXPECT_EQ(reports_[0].evaluation->evaluation(), 1u);
  EXPECT_TRUE(reports_[0].status.has_digest());
  EXPECT_EQ(EndEvents(), (std::vector<std::string>{"/c/e"}));
}

TEST_F(EndCheckpointTest, RestartDoesNotRetryAFailedCheckpoint) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  Train("checkpoint { dir: '/c' }");
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  servers_.Hold();
  written_[0].done(absl::PermissionDeniedError("the disk is read-only"));
  written_.clear();
  Save();
  servers_.TakeCalls();
  Restart();
  Pass(seconds(1));
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Inspect", "s:2 Inspect"}));
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().checkpoint().end_folder(), "");
  EXPECT_NE(Status().checkpoint().end_failure().find("the disk is read-only"), std::string::npos);
  EXPECT_EQ(EndEvents().size(), 1u);
}

TEST_F(EndCheckpointTest, CallerForTheJobsFolderGetsIt) {
  Train("checkpoint { dir: '/c' }");
  const auto answer = Ask();
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(std::string("/c/e"));
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_EQ((**answer)->folder(), "/c/e");
}

// The final checkpoint is only in the job's own folder.
TEST_F(EndCheckpointTest, CallerForAnotherFolderIsRefusedAtOnce) {
  Train("checkpoint { dir: '/c' }");
  Reach(5);
  servers_.FailNext("s:1 Checkpoint 7", absl::UnavailableError("not yet"));
  const auto in_progress = Ask("/started");
  Reach(5);
  ASSERT_EQ(Status().checkpoint().in_progress_step(), 7u);
  const auto wanted = Ask("/wanted");
  FinishAll();
  ASSERT_EQ(written_.size(), 1u);
  ASSERT_TRUE(wanted->has_value());
  EXPECT_EQ((*wanted)->status().code(), absl::StatusCode::kFailedPrecondition)
      << (*wanted)->status();
  EXPECT_FALSE(in_progress->has_value()) << "it may still be written";
  servers_.FailNext("s:1 Checkpoint 7", absl::AbortedError("the end's was asked for"));
  Pass(kTickInterval);
  ASSERT_TRUE(in_progress->has_value());
  EXPECT_EQ((*in_progress)->status().code(), absl::StatusCode::kAborted)
      << (*in_progress)->status();
  EXPECT_EQ(Status().state(), FINISHING);
}

TEST_F(EndCheckpointTest, JobWithNothingToTrainKeepsItsSource) {
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

TEST_F(EndCheckpointTest, RestoreWithoutEarlyStoppingKeepsTheParameters) {
  Train("", [](Coordinator::Options& options) {
    options.restore.emplace().set_step(10);
    StoredEvaluations& evaluations = *options.restore_state.mutable_evaluations();
    evaluations.set_next(2);
    evaluations.mutable_best()->set_evaluation(1);
    evaluations.set_best_is_kept(true);
    evaluations.set_stop_training(true);
  });
  const auto answer = ReportAll(worker_, 2, true);
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  EXPECT_FALSE((**answer)->stop());
  FinishAll();
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 Inspect", "s:2 Inspect"}));
  EXPECT_EQ(reports_.at(0).evaluation->evaluation(), 2u);
}

TEST_F(EndCheckpointTest, JobWithoutAFolderHasNoFinalCheckpoint) {
  Train("");
  FinishAll();
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(EndEvent(), "");
}

}  // namespace
}  // namespace pawl
