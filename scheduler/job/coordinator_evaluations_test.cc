// The ranks' reports of evaluations, and what the scheduler decides by them.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::seconds;

class CoordinatorEvaluationsTest : public CoordinatorFixture {
 protected:
  // Starts a job with a server and two workers of two ranks each.
  void BeginAsync() {
    BeginWithStore(absl::StrCat(kTraining, "consistency { mode: ASYNC }"), 1, 2);
    Join(SERVER_ROLE);
    first_ = Join(WORKER_ROLE, {0, 1});
    second_ = Join(WORKER_ROLE, {2, 3});
  }
  // Continues as `--rebuild` does, without the evaluations of the lost scheduler.
  void RebuildScheduler() {
    SchedulerState rebuilt = Saved();
    rebuilt.clear_evaluations();
    rebuilt.clear_barriers();
    saved_ = rebuilt.SerializeAsString();
    Restart();
  }

  RegisterResponse first_;
  RegisterResponse second_;
};

TEST_F(CoordinatorEvaluationsTest, EvaluationHasItsTime) {
  Begin(kTraining, 1, 1,
        [](Coordinator::Options& options) { options.unix_ms = [] { return uint64_t{1234567}; }; });
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  EXPECT_FALSE(Status().has_sparse_learning_rate());
  clock_.Advance(std::chrono::milliseconds(500));
  ReportAll(worker, 1, true);
  ASSERT_EQ(Status().evaluations_size(), 1);
  const EvaluationResult result = Status().evaluations(0);
  EXPECT_EQ(result.unix_ms(), 1234567u);
  EXPECT_EQ(result.train_s(), Status().train_s());
  EXPECT_EQ(result.trained_samples(), Status().samples());
  EXPECT_GT(result.calibration_bins_size(), 0);
  ReportAll(worker, 2, true);
  ASSERT_EQ(Status().evaluations_size(), 2);
  EXPECT_EQ(Status().evaluations(0).calibration_bins_size(), 0) << "only the latest has bins";
  EXPECT_GT(Status().evaluations(1).calibration_bins_size(), 0);
}

TEST_F(CoordinatorEvaluationsTest, EvaluationAnswersAllRanksWithOneResult) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  std::vector<Answer<ReportEvaluationResponse>> answers;
  for (uint32_t rank = 0; rank < 4; ++rank) answers.push_back(Report(worker, rank, 1, rank != 0));
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer->has_value());
    const EvaluationResult& result = (**answer)->result();
    EXPECT_EQ(result.samples(), 8u);
    EXPECT_EQ(result.step(), 10u);
    // Of 16 pairs the bad rank's positive loses 3, ties 1 below and its negative ties and wins
    // likewise.
    EXPECT_DOUBLE_EQ(result.auc(), (3 * (3 + 0.5) + (0.5 * 3 + 0)) / 16.0);
    EXPECT_DOUBLE_EQ(result.logloss(), 0.75);
    EXPECT_FALSE((**answer)->stop());
  }
  EXPECT_EQ((**Report(worker, 2, 1, true))->result().samples(), 8u)
      << "repeated after a lost answer";
  EXPECT_TRUE(servers_.TakeCalls().empty()) << "nothing is kept without early stopping";
  EXPECT_EQ((*Report(worker, 0, 7, true))->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*Report(worker, 9, 2, true))->status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Status().evaluations_size(), 1);
}

TEST_F(CoordinatorEvaluationsTest, EarlyStoppingKeepsAndRestoresTheBest) {
  Begin(absl::StrCat(kTraining, "evaluation { early_stopping { patience: 1 } }"), 2, 1);
  Join(SERVER_ROLE);
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  servers_.Hold();
  const auto first = ReportAll(worker, 1, true);
  EXPECT_FALSE(first->has_value()) << "answered before the best was kept";
  servers_.Release();
  ASSERT_TRUE(first->has_value());
  EXPECT_FALSE((**first)->stop());
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 KeepBest 10", "s:2 KeepBest 10"}));
  EXPECT_TRUE((**ReportAll(worker, 2, false))->stop());
  EXPECT_TRUE(servers_.TakeCalls().empty());

  ASSERT_TRUE(Finish(worker).ok());
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 RestoreBest", "s:2 RestoreBest",
                                                            "s:1 Inspect", "s:2 Inspect"}));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].evaluation->evaluation(), 1u);
  EXPECT_EQ(reports_[0].status.evaluations_size(), 2);
}

TEST_F(CoordinatorEvaluationsTest, NewHostReportsAnEvaluationInProgress) {
  Begin(absl::StrCat(kTraining, "elastic: true"), 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse first = JoinFollower();
  const std::map<uint32_t, uint64_t> all = RanksIn(GetAssignmentWhenReady(first));
  const RegisterResponse joiner = JoinFollower();
  std::vector<Answer<ReportEvaluationResponse>> answers;
  for (uint32_t rank = 0; rank < 3; ++rank) answers.push_back(Report(first, rank, 1, true));
  const auto waiting = Barrier(first, 4, 2);
  ASSERT_TRUE(GiveUp(first, {{2, all.at(2)}, {3, all.at(3)}}).ok());
  EXPECT_FALSE((*Report(first, 2, 1, true))->ok()) << "another worker hosts the rank";
  answers.push_back(Report(joiner, 3, 1, true));
  EXPECT_FALSE(answers.back()->has_value()) << "the former host's report on rank 2 does not count";
  answers.push_back(Report(joiner, 2, 1, true));
  ASSERT_TRUE(answers.back()->has_value());
  EXPECT_EQ((**answers.back())->result().samples(), 8u);
  EXPECT_TRUE(answers[0]->has_value());
  // The same at a barrier.
  const auto new_host = Barrier(joiner, 4, 2);
  EXPECT_FALSE(new_host->has_value());
  Barrier(first, 4, 0);
  Barrier(first, 4, 1);
  Barrier(joiner, 4, 3);
  EXPECT_TRUE(new_host->has_value() && (*new_host)->ok());
}

// Parts of unequal length, in a mode in which ranks need not end at the same step.
TEST_F(CoordinatorEvaluationsTest, EvaluationIsOfTheRanksThatHaveNotFinished) {
  BeginWithStore(absl::StrCat(kTraining, "consistency { mode: BOUNDED staleness: 2 }"), 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE, {0, 1});
  const RegisterResponse second = Join(WORKER_ROLE, {2, 3});
  const auto report = [&](uint64_t evaluation) {
    Report(second, 2, evaluation, true);
    return Report(second, 3, evaluation, true);
  };
  const auto waiting = report(1);
  EXPECT_FALSE(waiting->has_value());
  ASSERT_TRUE(Finish(first).ok());
  ASSERT_TRUE(waiting->has_value());
  ASSERT_TRUE((*waiting)->ok()) << (*waiting)->status();
  EXPECT_EQ((**waiting)->result().samples(), 4u);
  EXPECT_EQ((**waiting)->result().step(), 10u);
  EXPECT_EQ(ResultOf(report(2))->result().samples(), 4u);
  Restart();
  EXPECT_EQ(ResultOf(report(3))->result().samples(), 4u);
  ASSERT_TRUE(Finish(second).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
}

// Rank 0 has the result from the lost scheduler, and would wait for rank 2 before its next one.
TEST_F(CoordinatorEvaluationsTest, LostEvaluationIsSkippedAfterARebuild) {
  BeginWithStore(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE, {0, 1});
  const RegisterResponse second = Join(WORKER_ROLE, {2, 3});
  SchedulerState rebuilt = Saved();
  rebuilt.clear_evaluations();
  saved_ = rebuilt.SerializeAsString();
  Restart();
  Pass(2 * kFiguresSaveInterval);
  Restart();
  Report(first, {{0, 10, 160}});
  const auto lost = Report(second, 2, 1, true);
  Pass(seconds(1));
  EXPECT_FALSE(lost->has_value()) << "rank 0 has ended 10 steps, and this is of step 10";
  Report(first, {{0, 11, 176}});
  Pass(seconds(1));
  ASSERT_TRUE(lost->has_value());
  ASSERT_TRUE((*lost)->ok()) << (*lost)->status();
  EXPECT_FALSE((**lost)->has_result());
}

TEST_F(CoordinatorEvaluationsTest, RanksEvaluateOnceAllHaveArrived) {
  BeginAsync();
  std::vector<Answer<ReportEvaluationResponse>> arrivals;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (const auto& arrival : arrivals) EXPECT_FALSE(arrival->has_value());
    arrivals.push_back(Arrive(rank < 2 ? first_ : second_, rank, 1));
  }
  for (const auto& arrival : arrivals) EXPECT_TRUE(ResultOf(arrival).ok());
  EXPECT_TRUE(ResultOf(Arrive(first_, 0, 1)).ok()) << "repeated after a lost answer";
  EXPECT_FALSE(Report(first_, 0, 1, true)->has_value());
  EXPECT_EQ(ResultOf(Arrive(first_, 4, 1)).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(CoordinatorEvaluationsTest, ArrivalsOutliveTheDeathOfAnotherRanksWorker) {
  BeginAsync();
  Arrive(second_, 2, 1);
  const auto waiting = Arrive(first_, 0, 1);
  Arrive(first_, 1, 1);
  Kill(second_.node());
  Pass(seconds(2));
  Arrive(first_, 1, 1);
  EXPECT_FALSE(waiting->has_value()) << "the dead worker's ranks arrive again";
  const RegisterResponse successor = *ComeBack(second_.node());
  Arrive(successor, 3, 1);
  EXPECT_FALSE(waiting->has_value());
  Arrive(successor, 2, 1);
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE((*waiting)->ok()) << (*waiting)->status();
}

TEST_F(CoordinatorEvaluationsTest, ArrivalsDoNotWaitForFinishedRanks) {
  BeginAsync();
  Arrive(first_, 0, 1);
  const auto waiting = Arrive(first_, 1, 1);
  EXPECT_FALSE(waiting->has_value());
  ASSERT_TRUE(Finish(second_).ok());
  EXPECT_TRUE(ResultOf(waiting).ok());
}

// The second worker has got the answer to its arrival, and the first has not.
TEST_F(CoordinatorEvaluationsTest, RanksThatReportAfterARestartHaveArrived) {
  for (const bool rebuild : {false, true}) {
    BeginAsync();
    rebuild ? RebuildScheduler() : Restart();
    Arrive(first_, 0, 1);
    const auto waiting = Arrive(first_, 1, 1);
    Report(second_, 2, 1, true);
    EXPECT_FALSE(waiting->has_value());
    const auto reported = Report(second_, 3, 1, true);
    EXPECT_TRUE(ResultOf(waiting).ok());
    EXPECT_FALSE(reported->has_value());
    for (const uint32_t rank : {0, 1}) Report(first_, rank, 1, true);
    EXPECT_TRUE(ResultOf(reported)->has_result());
  }
}

// The first worker died after it had reported the evaluation and before it ended another step.
TEST_F(CoordinatorEvaluationsTest, RankIsNotAwaitedAtAnEvaluationThatItHasPassed) {
  for (const bool by_progress : {false, true}) {
    BeginAsync();
    RebuildScheduler();
    const auto waiting = Arrive(first_, 0, 1);
    EXPECT_FALSE(waiting->has_value());
    if (by_progress) {
      Report(second_, {{2, 11, 176}});
      Pass(seconds(1));
    } else {
      Arrive(second_, 2, 2);
    }
    EXPECT_FALSE(ResultOf(waiting)->has_result());
  }
}

}  // namespace
}  // namespace pawl
