// Checkpoints during training, and jobs that start from one, with the whole Coordinator.
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "client_lib/base/testing/table_specs.h"
#include "scheduler/testing/coordinator_checkpoint_fixture.h"

namespace pawl {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(CoordinatorCheckpointTest, ManifestListsThePartsOfAllServers) {
  Train("checkpoint { dir: '/c' every_steps: 10 keep: 2 }");
  Reach(0);
  EXPECT_EQ(written_.size(), 0u);
  Reach(5);
  EXPECT_EQ(servers_.TakeCalls(),
            (std::vector<std::string>{"s:1 Checkpoint 10", "s:2 Checkpoint 10"}));
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
  EXPECT_EQ(Status().checkpoint().in_progress_step(), 10u);
  written_[0].done(std::string("/c/flights-10"));
  EXPECT_EQ(Status().checkpoint().completed(), 1u);
  EXPECT_EQ(Status().checkpoint().last_step(), 10u);
  EXPECT_EQ(Status().checkpoint().last_folder(), "/c/flights-10");
}

TEST_F(CoordinatorCheckpointTest, CallerIsAnsweredWhenTheCheckpointIsWritten) {
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

TEST_F(CoordinatorCheckpointTest, StepThatHasPassedIsReplacedByALaterOne) {
  Train("");
  Reach(5);
  servers_.FailNext("s:2 Checkpoint 7", absl::OutOfRangeError("step 7 is reached"));
  const auto answer = Ask("/asked");
  Reach(5);
  EXPECT_TRUE(written_.empty());
  Reach(6);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 9u);
  EXPECT_EQ(Status().checkpoint().failed(), 0u);
}

TEST_F(CoordinatorCheckpointTest, MovingPartitionsDoNotDelayIt) {
  Train("");
  Reach(5);
  for (const int step : {7, 8, 9, 10}) {
    servers_.FailNext(absl::StrCat("s:2 Checkpoint ", step),
                      absl::AbortedError("the partition has moved"));
  }
  const auto answer = Ask("/asked");
  for (int i = 0; i < 5; ++i) Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 11u);
}

TEST_F(CoordinatorCheckpointTest, FailureIsReportedAndTheJobContinues) {
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

TEST_F(CoordinatorCheckpointTest, PeriodicCheckpointIsMadeAfterARestart) {
  Train("checkpoint { dir: '/c' every_steps: 1000 }", [this](Coordinator::Options& options) {
    options.state_changed = [this] { state_has_changed_ = true; };
  });
  servers_.Hold();
  Reach(995);
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "the step is not saved yet";
  Save();
  EXPECT_EQ(servers_.TakeCalls(),
            (std::vector<std::string>{"s:1 Checkpoint 1000", "s:2 Checkpoint 1000"}));
  Restart();
  Reach(1005);
  Save();
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 1007u);
  EXPECT_EQ(written_[0].dir, "/c");
}

TEST_F(CoordinatorCheckpointTest, EvaluationAtOrAfterTheCutIsLeftOut) {
  Train("evaluation { early_stopping { patience: 3 } }");
  Reach(10);
  ReportAll(worker_, 1, false);  // at step 10
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
  Reach(28);                     // of step 30
  ReportAll(worker_, 2, false);  // at step 20
  ReportAll(worker_, 3, false);  // at step 30
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

class RestoreTest : public CoordinatorCheckpointTest {
 protected:
  void TrainFromCheckpoint(const std::string& more = "") {
    servers_.Hold();
    Train(more, Restore);
  }
  static void Restore(Coordinator::Options& options) {
    StoredRestore restore;
    restore.set_dir("/c");
    restore.set_name("flights-40");
    restore.set_step(40);
    options.restore = restore;
    options.restore_state.mutable_membership()->set_last_incarnation(1000);
    StoredTable& table = *options.restore_state.mutable_tables()->add_tables();
    *table.mutable_spec() = SparseTableSpec("rows", 4, 7);
    *table.mutable_spec()->mutable_optimizer() = options.job.optimizer();
    table.set_ready(true);
    options.restore_state.mutable_tables()->set_last_id(7);
    options.restore_state.mutable_evaluations()->set_next(5);
  }
};

TEST_F(RestoreTest, TrainingWaitsUntilAllServersHaveLoaded) {
  TrainFromCheckpoint();
  EXPECT_GT(worker_.incarnation(), 1000u);
  EXPECT_EQ(RanksOf(worker_), "");
  EXPECT_EQ(Tables(), 0);
  EXPECT_EQ(Status().state(), STARTING);
  servers_.Release();
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  EXPECT_EQ((**GetAssignment(worker_))->counted_from_step(), 40u);
  EXPECT_EQ(Tables(), 1);
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ(Status().checkpoint().restored_from(), "/c/flights-40");
  // No step that the job has passed is requested.
  Ask("/asked");
  Reach(0);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].manifest.step(), 41u);
}

TEST_F(RestoreTest, StartTimeoutDoesNotLimitTheLoad) {
  TrainFromCheckpoint();
  Pass(3 * options_.start_timeout);
  EXPECT_EQ(Status().state(), STARTING) << Status().failure();
  servers_.Release();
  EXPECT_EQ(Status().state(), RUNNING) << Status().failure();
}

// Each failover restarts the deadline of the load itself.
TEST_F(RestoreTest, LoadWithFailoversEndsEventually) {
  TrainFromCheckpoint();
  Pass(kLoadTimeout - hours(1));
  ASSERT_TRUE(ComeBack("server-0").ok());
  Pass(hours(1) + seconds(10));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("to load the checkpoint"), std::string::npos)
      << Status().failure();
  servers_.Forget();
}

TEST_F(RestoreTest, StartTimeoutLimitsTheWaitForNodes) {
  Begin(kTraining, 2, 1, Restore);
  Join(SERVER_ROLE);
  Pass(options_.start_timeout + seconds(1));
  EXPECT_EQ(Status().state(), FAILED);
}

TEST_F(RestoreTest, NewTableWaitsForTheLoad) {
  TrainFromCheckpoint();
  const auto answer = CreateTable("another");
  EXPECT_FALSE(answer->has_value());
  servers_.Release();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((**answer)->table().id(), 8u);
}

TEST_F(RestoreTest, ReplicasAreCopiedAfterTheLoad) {
  TrainFromCheckpoint("replicas: 2");
  Pass(seconds(2));
  for (const Replicas& set : Sets())
    EXPECT_EQ(ReplicasText(set).find(' '), std::string::npos) << ReplicasText(set);
  servers_.Release();
  Pass(seconds(5));
  for (const Replicas& set : Sets()) EXPECT_EQ(set.in_sync(), 2u) << ReplicasText(set);
}

TEST_F(RestoreTest, ServerThatCannotLoadFailsTheJob) {
  servers_.FailNext("s:1 LoadCheckpoint /c/flights-40",
                    absl::DataLossError("p3.part is damaged at offset 17"));
  TrainFromCheckpoint();
  servers_.Release();
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("p3.part is damaged at offset 17"), std::string::npos)
      << Status().failure();
}

TEST_F(RestoreTest, RestoredTableKeepsItsIdWithASlowServer) {
  for (int i = 0; i < (kCreateTableTimeout + seconds(1)) / kTickInterval; ++i) {
    servers_.FailNext("s:1 CreateTable", absl::UnavailableError("connection refused"));
  }
  TrainFromCheckpoint();
  servers_.Release();
  Pass(kCreateTableTimeout + seconds(2));
  const auto answer = CreateTable("rows");
  ASSERT_TRUE(answer->has_value());
  ASSERT_TRUE((*answer)->ok()) << (*answer)->status();
  EXPECT_EQ((**answer)->table().id(), 7u) << "another table has fresh parameters";
  EXPECT_EQ(Tables(), 1);
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(RestoreTest, RefusedRestoredTableFailsTheJob) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  TrainFromCheckpoint();
  Save();
  servers_.FailNext("s:1 CreateTable", absl::InternalError("no such table here"));
  // Also after a restart of the scheduler.
  Restart();
  Pass(seconds(1));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_NE(Status().failure().find("creating table rows: no such table here"), std::string::npos)
      << Status().failure();
}

TEST_F(RestoreTest, RefusedNewTableDoesNotExist) {
  TrainFromCheckpoint();
  servers_.Release();
  servers_.FailNext("s:1 CreateTable", absl::InvalidArgumentError("too wide"));
  EXPECT_TRUE(absl::IsInvalidArgument((*CreateTable("another"))->status()));
  EXPECT_EQ(Tables(), 1);
  EXPECT_EQ(Status().state(), RUNNING);
}

TEST_F(RestoreTest, RestartedSchedulerContinuesTheLoad) {
  options_.state_changed = [this] { state_has_changed_ = true; };
  TrainFromCheckpoint();
  Save();
  Restart();
  Pass(seconds(1));
  EXPECT_EQ(RanksOf(worker_), "0 1 2 3");
  EXPECT_EQ(Status().checkpoint().restored_step(), 40u);
}

TEST_F(RestoreTest, RestartedSchedulerBeginsTheLoadOnce) {
  BeginWithStore(kTraining, 2, 1, Restore);
  Join(SERVER_ROLE);
  const RegisterRequest second = Registration(SERVER_ROLE, ++nonce_, {});
  const absl::StatusOr<RegisterResponse> joined = Register(second);
  ASSERT_TRUE(joined.ok());
  Add(second, *joined);
  Save();
  Restart(milliseconds(100));
  servers_.Hold();
  // Heartbeats come before the first tick.
  Pass(kTickInterval);
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 LoadCheckpoint /c/flights-40",
                                                            "s:2 LoadCheckpoint /c/flights-40"}));
}

TEST_F(RestoreTest, RankOfACallThatWaitsForTheLoadMovesOn) {
  for (const bool restart : {false, true}) {
    SCOPED_TRACE(restart);
    nodes_.clear();
    servers_.Hold();
    BeginWithStore(absl::StrCat(kTraining, "elastic: true"), 1, 1, Restore);
    Join(SERVER_ROLE);
    const RegisterResponse first = JoinFollower(/*ready=*/false);
    auto pending = GetAssignmentWhenReady(first);
    const RegisterResponse joiner = JoinFollower();
    if (restart) {
      Restart(milliseconds(500));
      servers_.Hold();
      Pass(milliseconds(200));
      GetAssignmentWhenReady(joiner);
      pending = GetAssignmentWhenReady(first);
    }
    EXPECT_FALSE(pending->has_value());
    servers_.Release();
    Save();
    ASSERT_TRUE(pending->has_value());
    EXPECT_EQ((**pending)->logical_workers_size(), 2);
    GetAssignmentWhenReady(first, (**pending)->version());
    EXPECT_EQ(RanksOf(first), "0 1");
    EXPECT_EQ(RanksOf(joiner), "2 3");
  }
}

TEST_F(CoordinatorCheckpointTest, ServeOnlyJobHasNoCheckpoints) {
  Begin("name: 'tables' partitions: 4 optimizer { sgd { learning_rate: 0.1 } }", 1, 0,
        [&](Coordinator::Options& options) {
          options.write_checkpoint = [](const std::string&, CheckpointManifest, uint32_t,
                                        absl::AnyInvocable<void(absl::StatusOr<std::string>)>) {};
        });
  Join(SERVER_ROLE);
  ASSERT_EQ(Status().state(), RUNNING);
  auto refused = Ask("/asked");
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->status().code(), absl::StatusCode::kFailedPrecondition)
      << (*refused)->status();
  // A program with its own training loop.
  Join(WORKER_ROLE, {0});
  EXPECT_FALSE(Ask("/asked")->has_value());
}

TEST_F(CoordinatorCheckpointTest, CancelledRequestIsNotStarted) {
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

absl::Status Damage() {
  return absl::DataLossError("/c/flights-6/p1.part is damaged at offset 60: the checksum is wrong");
}

TEST_F(CoordinatorCheckpointTest, DamagedCheckpointIsReplacedWithoutARequest) {
  Train("checkpoint { dir: '/c' every_steps: 1000 keep: 2 }");
  Reach(5);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(Status().counters().files_damaged(), 0u);
  coordinator_->OnCheckpointDamaged(5, false, Damage());
  coordinator_->OnCheckpointDamaged(5, false, Damage());
  EXPECT_EQ(Status().counters().files_damaged(), 2u);
  EXPECT_EQ(coordinator_->CheckpointFiles().damaged, 2u);
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/c");
  EXPECT_EQ(written_[0].keep, 2u);
  EXPECT_EQ(written_[0].manifest.step(), 7u);
  EXPECT_EQ(Status().counters().files_repaired(), 0u) << "it is not complete yet";
  written_[0].done(std::string("/c/flights-7"));
  EXPECT_EQ(Status().counters().files_damaged(), 2u);
  EXPECT_EQ(Status().counters().files_repaired(), 2u);
  EXPECT_EQ(coordinator_->CheckpointFiles().replaced, 2u);
  for (int i = 0; i < 5; ++i) Reach(20);
  EXPECT_EQ(written_.size(), 1u) << "one is enough";
}

TEST_F(CoordinatorCheckpointTest, ReplacementIsRetriedAfterAPause) {
  Train("checkpoint { dir: '/c' every_steps: 1000 }");
  Reach(5);
  coordinator_->OnCheckpointDamaged(5, false, Damage());
  servers_.FailNext("s:2 Checkpoint 7", absl::ResourceExhaustedError("the disk is full"));
  Reach(5);
  EXPECT_EQ(Status().checkpoint().failed(), 1u);
  for (MonotonicDuration passed{}; passed < kFirstRepairPause - kTickInterval;
       passed += kTickInterval)
    Reach(8);
  EXPECT_TRUE(written_.empty()) << "every tick would write the whole model in vain";
  for (int i = 0; i < 3; ++i) Reach(10);
  ASSERT_EQ(written_.size(), 1u);
  written_[0].done(std::string("/c/flights-12"));
  EXPECT_EQ(Status().counters().files_repaired(), 1u);
}

TEST_F(CoordinatorCheckpointTest, CancelledRequestDoesNotWithdrawAReplacement) {
  Train("checkpoint { dir: '/c' every_steps: 1000 }");
  Reach(5);
  Ask("/other");
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  coordinator_->OnCheckpointDamaged(5, false, Damage());
  Reach(6);
  Ask("/c");
  coordinator_->Cancel(ticket_, /*deadline_passed=*/false);
  written_[0].done(std::string("/other/flights-7"));
  Reach(8);
  ASSERT_EQ(written_.size(), 2u);
  EXPECT_EQ(written_[1].dir, "/c");
}

TEST_F(CoordinatorCheckpointTest, CheckpointInAnotherFolderReplacesNothing) {
  Train("checkpoint { dir: '/c' every_steps: 1000 }");
  Reach(5);
  const auto answer = Ask("/asked");
  Reach(5);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].dir, "/asked");
  coordinator_->OnCheckpointDamaged(5, false, Damage());
  written_[0].done(std::string("/asked/flights-7"));
  EXPECT_EQ(Status().counters().files_repaired(), 0u);
  Reach(8);
  ASSERT_EQ(written_.size(), 2u);
  EXPECT_EQ(written_[1].dir, "/c");
}

TEST_F(CoordinatorCheckpointTest, ImpossibleFolderFailsItsCheckpointAtOnce) {
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
