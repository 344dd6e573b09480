#include "scheduler/evaluation/evaluations.h"

#include "client_lib/job/job_file.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

Job TestJob() {
  Job job = *ParseJob(R"(
    name: "j" data { train: "t" eval: "e" format: LIBSVM } model { fm { dim: 4 } }
    logical_workers: 2 evaluation { early_stopping { patience: 2 } }
  )",
                      "test.job");
  FillDefaults(job, 1);
  return job;
}

ReportEvaluationRequest Part(uint64_t evaluation, uint32_t rank, uint32_t part = 0,
                             uint32_t parts = 1) {
  ReportEvaluationRequest request;
  request.set_evaluation(evaluation);
  request.set_rank(rank);
  request.set_part(part);
  request.set_parts(parts);
  return request;
}

ReportEvaluationRequest PartAt(uint64_t step, uint64_t evaluation, uint32_t rank) {
  ReportEvaluationRequest request = Part(evaluation, rank);
  request.set_step(step);
  return request;
}

EvaluationResult Auc(uint64_t evaluation, double auc, uint64_t step = 0) {
  EvaluationResult result;
  result.set_evaluation(evaluation);
  result.set_step(step);
  result.set_auc(auc);
  return result;
}

TEST(EvaluationsTest, PublishedEvaluationIsFound) {
  Evaluations evaluations(TestJob());
  EXPECT_TRUE(evaluations.Add(Part(1, 0)).ok());
  EXPECT_FALSE(evaluations.Take().has_value());
  EXPECT_TRUE(evaluations.Add(Part(1, 1)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 1u);
  EXPECT_TRUE(evaluations.Add(Part(1, 0)).ok()) << "repeated while it is computed";
  EXPECT_EQ(evaluations.Add(Part(2, 0)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(evaluations.Find(1, 0), nullptr);
  evaluations.Publish(Auc(1, 0.5));
  ASSERT_NE(evaluations.Find(1, 0), nullptr);
  EXPECT_TRUE(evaluations.Add(Part(2, 0)).ok());
}

TEST(EvaluationsTest, RankArrivesAlsoWhileTheEvaluationIsComputed) {
  Evaluations evaluations(TestJob());
  ReportEvaluationRequest arrival = PartAt(40, 4, 0);
  arrival.set_arrives(true);
  EXPECT_TRUE(evaluations.Add(arrival).ok()) << "the first arrival decides the number";
  EXPECT_FALSE(evaluations.AllHaveArrived());
  for (const uint32_t rank : {0, 1}) EXPECT_TRUE(evaluations.Add(PartAt(40, 4, rank)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 4u);
  EXPECT_TRUE(evaluations.Add(arrival).ok());
  EXPECT_TRUE(evaluations.AllHaveArrived());
  evaluations.Publish(Auc(4, 0.5, 40));
  EXPECT_FALSE(evaluations.AllHaveArrived());
}

TEST(EvaluationsTest, ResultsOfLabelsHaveTheirColumnsNames) {
  Job job = TestJob();
  job.set_logical_workers(1);
  Data& data = *job.mutable_data();
  data.set_format(CSV);
  for (const char* name : {"click", "buy"}) {
    Column* const column = data.mutable_csv()->add_columns();
    column->set_name(name);
    column->mutable_label();
  }
  Evaluations evaluations(job);
  for (uint32_t label = 0; label < 2; ++label) {
    ReportEvaluationRequest part = Part(1, 0);
    part.set_label(label);
    part.set_labels(2);
    EXPECT_FALSE(evaluations.Take().has_value());
    EXPECT_TRUE(evaluations.Add(part).ok());
  }
  const std::optional<EvaluationInput> input = evaluations.Take();
  ASSERT_TRUE(input.has_value());
  EXPECT_EQ(input->label, "click");
  ASSERT_EQ(input->other_labels.size(), 1u);
  EXPECT_EQ(input->other_labels[0].label, "buy");
  // Each label counts against the limit on results.
  EvaluationResult result = Auc(1, 0.5);
  result.add_other_labels();
  for (size_t i = 0; i < kMaxEvaluationsKept; ++i) evaluations.Publish(result);
  EXPECT_EQ(evaluations.results().size(), kMaxEvaluationsKept / 2);
}

TEST(EvaluationsTest, JobWithoutAModelHasLogisticLoss) {
  Job job = TestJob();
  EXPECT_EQ(Evaluations(job).loss(), LOGISTIC);
  job.mutable_model()->set_loss(SQUARED);
  EXPECT_EQ(Evaluations(job).loss(), SQUARED);
  job.clear_model();
  EXPECT_EQ(Evaluations(job).loss(), LOGISTIC);
}

TEST(EvaluationsTest, RankWithANewHostReportsAgain) {
  Evaluations evaluations(TestJob());
  EXPECT_TRUE(evaluations.Add(Part(1, 0, 0, 2)).ok());
  EXPECT_TRUE(evaluations.Add(Part(1, 1)).ok());
  evaluations.Forget(0);
  EXPECT_EQ(evaluations.Add(Part(1, 0, 1, 2)).code(), absl::StatusCode::kFailedPrecondition)
      << "its first part was dropped";
  EXPECT_TRUE(evaluations.Add(Part(1, 0)).ok()) << "its successor may have other parts";
  EXPECT_TRUE(evaluations.Take().has_value());
  evaluations.Forget(0);
}

TEST(EvaluationsTest, UnpublishedEvaluationIsRepeatedAfterARestart) {
  Evaluations before(TestJob());
  for (uint64_t evaluation = 1; evaluation <= 3; ++evaluation) {
    ASSERT_TRUE(before.Add(Part(evaluation, 0)).ok());
    ASSERT_TRUE(before.Add(Part(evaluation, 1)).ok());
    ASSERT_TRUE(before.Take().has_value());
    const EvaluationResult result = Auc(evaluation, evaluation == 1 ? 0.9 : 0.5);
    EXPECT_EQ(before.Judge(result).improved, evaluation == 1);
    if (evaluation < 3) before.Publish(result);
  }
  Evaluations after(TestJob());
  after.Restore(before.Save());
  EXPECT_EQ(after.results().size(), 2u);
  EXPECT_FALSE(after.stop_training());
  EXPECT_TRUE(after.best_is_kept());
  EXPECT_EQ(after.FinalResult()->evaluation(), 1u);
  ASSERT_TRUE(after.Add(Part(3, 0)).ok());
  ASSERT_TRUE(after.Add(Part(3, 1)).ok());
  ASSERT_TRUE(after.Take().has_value());
  EXPECT_TRUE(after.Judge(Auc(3, 0.5)).stop) << "the second one in a row without improvement";
  after.Publish(Auc(3, 0.5));
  EXPECT_TRUE(after.stop_training());
}

// The kept parameters are of a training that the job does not return to.
TEST(EvaluationsTest, JobWithoutEarlyStoppingIgnoresItsState) {
  Evaluations before(TestJob());
  for (uint64_t evaluation = 1; evaluation <= 3; ++evaluation)
    before.Publish(Auc(evaluation, evaluation == 1 ? 0.9 : 0.5));
  ASSERT_TRUE(before.stop_training());
  Job job = TestJob();
  job.mutable_evaluation()->clear_early_stopping();
  Evaluations after(job);
  after.Restore(before.Save());
  EXPECT_FALSE(after.best_is_kept());
  EXPECT_FALSE(after.stop_training());
  EXPECT_EQ(after.results().size(), 3u);
  EXPECT_EQ(after.FinalResult()->evaluation(), 3u);
  EXPECT_FALSE(after.Save().best_is_kept());
}

TEST(EvaluationsTest, EndLeavesOutItsEvaluationUnlessItIsTheBest) {
  Evaluations before(TestJob());
  before.Publish(Auc(1, 0.9, 10));
  EXPECT_EQ(before.SaveEnd(10).results_size(), 1);
  EXPECT_EQ(before.SaveEnd(10).next(), 1u);
  EXPECT_EQ(before.SaveEnd(10).best().step(), 10u);
  before.Publish(Auc(2, 0.5, 20));
  before.Publish(Auc(3, 0.5, 30));
  ASSERT_TRUE(before.stop_training());
  EXPECT_TRUE(before.SaveEnd(35).stop_training());
  // A restarted scheduler stores the same.
  Evaluations restarted(TestJob());
  restarted.Restore(before.Save());
  for (const Evaluations* evaluations : {&before, &restarted}) {
    const StoredEvaluations end = evaluations->SaveEnd(30);
    EXPECT_EQ(end.results_size(), 2);
    EXPECT_EQ(end.next(), 3u);
    EXPECT_EQ(end.best().step(), 10u);
    EXPECT_TRUE(end.best_is_kept());
    EXPECT_EQ(end.without_improvement(), 1u);
    EXPECT_FALSE(end.stop_training());
  }
}

// The former evaluations were judged by another patience.
TEST(EvaluationsTest, EndStoresNoDecisionThatItsJobHasNotMade) {
  StoredEvaluations stored;
  *stored.add_results() = Auc(1, 0.9, 10);
  *stored.add_results() = Auc(2, 0.5, 20);
  *stored.add_results() = Auc(3, 0.95, 30);
  *stored.add_results() = Auc(4, 0.5, 40);
  *stored.mutable_best() = Auc(3, 0.95, 30);
  stored.set_best_is_kept(true);
  stored.set_without_improvement(1);
  stored.set_next(5);
  Job job = TestJob();
  job.mutable_evaluation()->mutable_early_stopping()->set_patience(1);
  Evaluations evaluations(job);
  evaluations.Restore(stored);
  EXPECT_EQ(evaluations.SaveEnd(45).SerializeAsString(), stored.SerializeAsString());
  // The first result may have been dropped.
  stored.mutable_results()->DeleteSubrange(0, 1);
  Evaluations shorter(job);
  shorter.Restore(stored);
  EXPECT_TRUE(shorter.Judge(Auc(5, 0.5, 50)).stop);
  shorter.Publish(Auc(5, 0.5, 50));
  EXPECT_EQ(shorter.SaveEnd(50).SerializeAsString(), stored.SerializeAsString());
}

// The state after a job's end that was its best: evaluation 2, at step 15.
Evaluations AfterTheEnd() {
  StoredEvaluations stored;
  *stored.add_results() = Auc(1, 0.5, 10);
  *stored.add_results() = Auc(2, 0.9, 15);
  *stored.mutable_best() = Auc(2, 0.9, 15);
  stored.set_best_is_kept(true);
  stored.set_next(2);
  Evaluations evaluations(TestJob());
  evaluations.Restore(stored);
  return evaluations;
}

TEST(EvaluationsTest, NumberOfAnEndBetweenPausesIsReused) {
  Evaluations evaluations = AfterTheEnd();
  EXPECT_NE(evaluations.Find(2, 15), nullptr) << "nothing was left to train: it is not repeated";
  EXPECT_EQ(evaluations.Find(2, 20), nullptr);
  ASSERT_TRUE(evaluations.Add(PartAt(20, 2, 0)).ok());
  EXPECT_EQ(evaluations.Add(PartAt(30, 3, 1)).code(), absl::StatusCode::kFailedPrecondition)
      << "one at a time";
  ASSERT_TRUE(evaluations.Add(PartAt(20, 2, 1)).ok());
  ASSERT_TRUE(evaluations.Take().has_value());
  EXPECT_FALSE(evaluations.Judge(Auc(2, 0.8, 20)).improved);
  evaluations.Publish(Auc(2, 0.8, 20));
  EXPECT_EQ(evaluations.FinalResult()->step(), 15u);
  EXPECT_EQ(evaluations.Find(2, 20)->auc(), 0.8);
  EXPECT_EQ(evaluations.Save().next(), 3u);
  EXPECT_TRUE(evaluations.Add(PartAt(30, 3, 0)).ok());
}

// The state after a job's end that has dropped old evaluations; the end, at step 40975, has its own
// evaluation.
Evaluations AfterALongJob() {
  StoredEvaluations stored;
  *stored.add_results() = Auc(4097, 0.5, 40970);
  *stored.add_results() = Auc(4098, 0.5, 40975);
  stored.set_next(4099);
  Evaluations evaluations(TestJob());
  evaluations.Restore(stored);
  return evaluations;
}

TEST(EvaluationsTest, NumberOfACountingEndIsReusedLater) {
  Evaluations evaluations = AfterALongJob();
  EXPECT_NE(evaluations.Find(4098, 40975), nullptr);
  EXPECT_EQ(evaluations.Find(4098, 40980), nullptr);
  ASSERT_TRUE(evaluations.Add(PartAt(40980, 4098, 0)).ok());
  EXPECT_EQ(evaluations.Add(PartAt(40990, 4099, 1)).code(), absl::StatusCode::kFailedPrecondition)
      << "one at a time";
  ASSERT_TRUE(evaluations.Add(PartAt(40980, 4098, 1)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 4098u);
  evaluations.Publish(Auc(4098, 0.6, 40980));
  EXPECT_EQ(evaluations.Add(PartAt(40990, 4098, 0)).code(), absl::StatusCode::kFailedPrecondition)
      << "only after an end";
  EXPECT_TRUE(evaluations.Add(PartAt(40990, 4099, 0)).ok());
}

TEST(EvaluationsTest, CountingEndAtAPauseIsFollowedByTheNextNumber) {
  Evaluations evaluations = AfterALongJob();
  ASSERT_TRUE(evaluations.Add(PartAt(40980, 4099, 0)).ok());
  EXPECT_EQ(evaluations.Add(PartAt(40980, 4098, 1)).code(), absl::StatusCode::kFailedPrecondition)
      << "one at a time";
  EXPECT_TRUE(evaluations.Add(PartAt(40980, 4099, 1)).ok());
}

// With more samples an epoch has more steps, and the evaluations of epochs other numbers.
TEST(EvaluationsTest, JobThatContinuesWithOtherDataHasItsOwnNumbers) {
  StoredEvaluations stored;
  *stored.add_results() = Auc(9, 0.5, 180);
  stored.set_next(10);
  Evaluations evaluations(TestJob());
  evaluations.Restore(stored);
  ASSERT_TRUE(evaluations.Add(PartAt(210, 7, 0)).ok());
  ASSERT_TRUE(evaluations.Add(PartAt(210, 7, 1)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 7u);
  evaluations.Publish(Auc(7, 0.6, 210));
  EXPECT_EQ(evaluations.Add(PartAt(240, 10, 0)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(evaluations.Add(PartAt(240, 8, 0)).ok());
}

TEST(EvaluationsTest, RebuiltSchedulerContinuesWithTheWorkersNumbers) {
  Evaluations evaluations(TestJob());
  evaluations.Restore(StoredEvaluations());
  ASSERT_TRUE(evaluations.Add(Part(4, 0)).ok());
  ASSERT_TRUE(evaluations.Add(Part(4, 1)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 4u);
  evaluations.Publish(Auc(4, 0.6));
  EXPECT_FALSE(evaluations.SkipTo(5));
  EXPECT_TRUE(evaluations.Add(Part(5, 0)).ok());
  EXPECT_FALSE(evaluations.IsLost(4));
}

// Rank 1 has got its result, and rank 0 has not.
TEST(EvaluationsTest, EvaluationPublishedByTheLostSchedulerIsSkipped) {
  for (const bool late_first : {false, true}) {
    Evaluations evaluations(TestJob());
    evaluations.Restore(StoredEvaluations());
    if (late_first) {
      ASSERT_TRUE(evaluations.Add(Part(3, 0)).ok());
      EXPECT_TRUE(evaluations.SkipTo(4));
      ASSERT_TRUE(evaluations.Add(Part(4, 1)).ok());
    } else {
      ASSERT_TRUE(evaluations.Add(Part(4, 1)).ok());
      EXPECT_TRUE(evaluations.IsLost(3));
    }
    EXPECT_FALSE(evaluations.IsLost(4));
    ASSERT_TRUE(evaluations.Add(Part(4, 0)).ok());
    EXPECT_EQ(evaluations.Take()->evaluation, 4u);
  }
}

TEST(EvaluationsTest, EvaluationThatARankHasPassedIsSkipped) {
  Evaluations rebuilt(TestJob());
  rebuilt.Restore(StoredEvaluations());
  ASSERT_TRUE(rebuilt.Add(PartAt(30, 3, 0)).ok());
  EXPECT_FALSE(rebuilt.SkipBefore(30)) << "the rank evaluates before it ends the step";
  Evaluations restarted(TestJob());
  restarted.Restore(rebuilt.Save());
  ASSERT_TRUE(restarted.Add(PartAt(30, 3, 0)).ok());
  for (Evaluations* evaluations : {&rebuilt, &restarted}) {
    EXPECT_TRUE(evaluations->SkipBefore(31));
    EXPECT_FALSE(evaluations->MayBeLost());
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(evaluations->Add(PartAt(40, 4, rank)).ok());
    EXPECT_EQ(evaluations->Take()->evaluation, 4u);
  }
  EXPECT_EQ(rebuilt.SaveEnd(50).next(), 1u);
}

TEST(EvaluationsTest, ArrivalAtALostEvaluationIsSkipped) {
  ReportEvaluationRequest arrival = PartAt(30, 3, 0);
  arrival.set_arrives(true);
  Evaluations passed(TestJob());
  passed.Restore(StoredEvaluations());
  ASSERT_TRUE(passed.Add(arrival).ok());
  EXPECT_TRUE(passed.SkipBefore(31));
  Evaluations later(TestJob());
  later.Restore(StoredEvaluations());
  ASSERT_TRUE(later.Add(arrival).ok());
  EXPECT_TRUE(later.SkipTo(4));
  arrival.set_evaluation(4);
  ASSERT_TRUE(later.Add(arrival).ok());
  EXPECT_TRUE(later.IsLost(3));
}

TEST(EvaluationsTest, EndAtAPauseIsFollowedByTheNextNumber) {
  Evaluations evaluations = AfterTheEnd();
  ASSERT_TRUE(evaluations.Add(Part(3, 0)).ok());
  EXPECT_EQ(evaluations.Add(Part(4, 0)).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(evaluations.Add(Part(3, 1)).ok());
  EXPECT_EQ(evaluations.Take()->evaluation, 3u);
}

}  // namespace
}  // namespace pawl
