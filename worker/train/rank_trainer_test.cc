#include "worker/train/rank_trainer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "worker/dense/dense_source.h"
#include "worker/train/evaluation_report.h"
#include "worker/train/testing/trainer_device.h"
#include "worker/train/testing/trainer_fakes.h"

namespace pawl {
namespace {

struct Setting {
  ConsistencyMode mode = SYNC;
  uint32_t logical_workers = 2;
  uint32_t batch_size = 8;
  int train_samples = 20;
  int eval_samples = 0;
  uint32_t epochs = 2;
  uint64_t stop_after = 0;
  bool share_dense = true;
  MonotonicDuration step_delay = MonotonicDuration::zero();
  Straggler straggler = {};
  // By rank; empty means 0.
  std::vector<uint64_t> first_steps = {};
  // Gives each evaluation sample a score of its own.
  bool distinct_scores = false;
  uint32_t micro_batches = 1;
  Precision precision = {};
  std::string group_by = {};
  uint64_t max_exact_samples = 0;
  float delay_compensation = 0;
  uint64_t max_steps = 0;
};

// All ranks of a job in this process, over the fakes. Tests access its public members.
class Cluster {
 public:
  explicit Cluster(const Setting& setting) {
    job_.set_name("test");
    job_.set_seed(7);
    job_.set_partitions(4);
    job_.set_batch_size(setting.batch_size);
    job_.set_epochs(setting.epochs);
    job_.set_logical_workers(setting.logical_workers);
    job_.set_micro_batches(setting.micro_batches);
    *job_.mutable_precision() = setting.precision;
    job_.mutable_consistency()->set_mode(setting.mode);
    job_.set_delay_compensation(setting.delay_compensation);
    job_.set_max_steps(setting.max_steps);
    job_.mutable_data()->set_format(LIBSVM);
    job_.mutable_data()->add_train(WriteFile("train", setting.train_samples));
    train_ = Dataset::Load(job_.data(), job_.data().train(0)).value();
    if (setting.eval_samples > 0) {
      job_.mutable_data()->add_eval(
          WriteFile("eval", setting.eval_samples, setting.distinct_scores));
      eval_ = Dataset::Load(job_.data(), job_.data().eval(0)).value();
    }
    job_.mutable_evaluation()->set_group_by(setting.group_by);
    job_.mutable_evaluation()->set_max_exact_samples(setting.max_exact_samples);
    job_.mutable_model()->mutable_logistic_regression();
    job_.mutable_optimizer()->mutable_sgd()->set_learning_rate(kLearningRate);

    Sampler::Options sampling;
    sampling.samples = train_->size();
    sampling.batch_size = job_.batch_size();
    sampling.logical_workers = setting.logical_workers;
    sampling.seed = job_.seed();
    sampler_.emplace(Sampler::Create(sampling).value());
    plan_.emplace(job_, sampler_->epochs());
    std::vector<uint64_t> first_steps = setting.first_steps;
    first_steps.resize(setting.logical_workers);
    servers_ = std::make_unique<FakeServers>(setting.mode, first_steps);
    rendezvous_ = std::make_unique<FakeRendezvous>(setting.logical_workers, setting.stop_after);
    progress_ = std::make_unique<ProgressBoard>(plan_->total_steps(), [](const WorkerProgress&) {});
    auto model = TrainingModel::Create(job_, train_->shape(), *device_).value();
    std::vector<Table> dense;
    for (TableSpec spec : model->tables()) {
      spec.set_id(static_cast<uint32_t>(tables_.size() + 1));
      tables_.emplace_back(spec);
      if (tables_.back().dense()) dense.push_back(tables_.back());
    }
    if (setting.share_dense) dense_ = std::make_unique<DenseSnapshots>(dense);
    for (uint32_t rank = 0; rank < setting.logical_workers; ++rank) {
      sessions_.push_back(std::make_unique<FakeLogicalWorker>(*servers_, rank, first_steps[rank]));
      progress_->AddRank(rank, first_steps[rank], sampler_->SamplesBefore(first_steps[rank], rank));
      trainers_.push_back(std::make_unique<RankTrainer>(
          SharedFor(setting), Interrupts{leave_, abandon_}, *sessions_.back(),
          TrainingModel::Create(job_, train_->shape(), *device_).value()));
    }
  }

  RankShared SharedFor(const Setting& setting) {
    return {.job = job_,
            .logical_workers = setting.logical_workers,
            .sampler = *sampler_,
            .plan = *plan_,
            .train = *train_,
            .eval = eval_.get(),
            .eval_in_memory = eval_.get(),
            .tables = tables_,
            .dense = dense_.get(),
            .evaluation_dense = dense_.get(),
            .rendezvous = *rendezvous_,
            .progress = *progress_,
            .step_delay = setting.step_delay,
            .straggler = setting.straggler};
  }

  std::vector<absl::Status> RunAll() {
    std::vector<absl::Status> results(trainers_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < trainers_.size(); ++i) {
      threads.emplace_back([this, i, &results] { results[i] = trainers_[i]->Run(); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  void RunAllOk() {
    for (const absl::Status& status : RunAll()) ASSERT_TRUE(status.ok()) << status;
  }

  int CountInLogs(const std::string& what) {
    int count = 0;
    for (uint32_t rank = 0; rank < trainers_.size(); ++rank) {
      for (const std::string& entry : servers_->LogOf(rank))
        count += entry.find(what) != std::string::npos;
    }
    return count;
  }

  std::unique_ptr<Device> device_ = TrainerDevice();
  Job job_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> eval_;
  std::optional<Sampler> sampler_;
  std::optional<StepPlan> plan_;
  std::vector<Table> tables_;
  std::unique_ptr<DenseSnapshots> dense_;
  std::unique_ptr<FakeServers> servers_;
  std::unique_ptr<FakeRendezvous> rendezvous_;
  std::unique_ptr<ProgressBoard> progress_;
  Interrupt leave_;
  Interrupt abandon_;
  std::vector<std::unique_ptr<FakeLogicalWorker>> sessions_;
  std::vector<std::unique_ptr<RankTrainer>> trainers_;
};

TEST(RankTrainerTest, PullsTheNextStepBeforePushingThisOne) {
  Cluster cluster({.logical_workers = 1,
                   .batch_size = 10,
                   .train_samples = 30,
                   .epochs = 1,
                   .share_dense = false});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.servers_->LogOf(0),
            (std::vector<std::string>{"pull 0 linear bias", "pull 1 linear bias", "push 0", "end 0",
                                      "pull 2 linear bias", "push 1", "end 1", "push 2", "end 2"}));
}

TEST(RankTrainerTest, RanksOfOneProcessPullTheDenseTablesOnce) {
  Cluster cluster({.logical_workers = 4});
  cluster.RunAllOk();
  const int steps = static_cast<int>(cluster.plan_->total_steps());
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(cluster.CountInLogs("bias"), steps);
  EXPECT_EQ(cluster.CountInLogs("linear"), 4 * steps);
}

TEST(RankTrainerTest, SharedDenseTablesGiveTheSameBits) {
  Cluster together({.logical_workers = 4, .epochs = 5});
  together.RunAllOk();
  Cluster apart({.logical_workers = 4, .epochs = 5, .share_dense = false});
  apart.RunAllOk();
  EXPECT_EQ(together.servers_->pushed(), apart.servers_->pushed());
  EXPECT_EQ(together.servers_->parameters(), apart.servers_->parameters());
}

TEST(RankTrainerTest, MicroBatchesGiveTheGradientsOfTheWholeBatch) {
  Cluster whole({.logical_workers = 2, .epochs = 5});
  whole.RunAllOk();
  // Shares have 4 samples, and 2 at the end of an epoch.
  for (const uint32_t parts : {2, 3, 4, 9}) {
    Cluster cluster({.logical_workers = 2, .epochs = 5, .micro_batches = parts});
    cluster.RunAllOk();
    const auto expected = whole.servers_->parameters();
    const auto parameters = cluster.servers_->parameters();
    ASSERT_EQ(parameters.size(), expected.size());
    for (const auto& [key, row] : expected) {
      for (size_t i = 0; i < row.size(); ++i)
        EXPECT_NEAR(parameters.at(key)[i], row[i], 1e-6f) << key.first << parts;
    }
    EXPECT_EQ(cluster.CountInLogs("push"), whole.CountInLogs("push"));
    EXPECT_EQ(cluster.servers_->pushed_keys(1), whole.servers_->pushed_keys(1));
    EXPECT_EQ(cluster.progress_->progress().samples(), whole.progress_->progress().samples());
    // The loss depends on which rank reports first.
    EXPECT_NEAR(cluster.progress_->progress().loss(), whole.progress_->progress().loss(), 0.01);
  }
}

TEST(RankTrainerTest, GradientsArePushedInTheJobsType) {
  for (const ElementType type : {ELEMENT_TYPE_UNSPECIFIED, FLOAT32, BFLOAT16, FLOAT16}) {
    Precision precision;
    precision.set_gradients(type);
    Cluster cluster({.precision = precision});
    cluster.RunAllOk();
    const std::set<ElementType> expected = {type == ELEMENT_TYPE_UNSPECIFIED ? FLOAT32 : type};
    for (const char* table : {"linear", "bias"})
      EXPECT_EQ(cluster.servers_->element_types()[table], expected) << table;
  }
}

TEST(RankTrainerTest, CountsTrainingAndWaitingTime) {
  constexpr std::chrono::milliseconds kDelay{20};
  // Rank 1 waits for rank 0, whose steps take longer, as soon as it has handed in its part.
  Cluster cluster({.logical_workers = 2, .batch_size = 10, .train_samples = 30, .epochs = 1});
  std::atomic<uint64_t> given{0};
  for (const uint64_t step : {0, 1, 2}) {
    cluster.servers_->AtPush(1, step, [&] { ++given; });
    cluster.servers_->AtPush(0, step, [&, step] {
      EXPECT_TRUE(Eventually([&] { return given > step; }));
      cluster.abandon_.SleepFor(kDelay).IgnoreError();
    });
  }
  cluster.RunAllOk();
  const WorkerProgress progress = cluster.progress_->progress();
  EXPECT_GE(progress.training_s(), 5 * Seconds(kDelay));
  // Rank 1 waits before its second and third step, up to the machine's own delays.
  EXPECT_GE(progress.waiting_s(), Seconds(kDelay));
  EXPECT_LE(progress.waiting_s(), progress.training_s() - 3 * Seconds(kDelay) + 1e-3);
}

TEST(RankTrainerTest, WaitsBetweenStepsAreNotTrainingTime) {
  // In the evaluation after step 2, three ranks wait for the push of the fourth and then continue.
  Cluster cluster({.logical_workers = 4, .batch_size = 12, .train_samples = 36, .eval_samples = 8});
  cluster.servers_->AtPush(
      0, 2, [&] { cluster.abandon_.SleepFor(std::chrono::milliseconds(100)).IgnoreError(); });
  cluster.RunAllOk();
  const WorkerProgress progress = cluster.progress_->progress();
  EXPECT_LE(progress.waiting_s(), progress.training_s());
}

TEST(RankTrainerTest, RankWithoutSamplesEndsItsStepsWithoutPushes) {
  // Steps of 3 samples for 4 ranks; the last step has 2.
  Cluster cluster({.logical_workers = 4, .batch_size = 3, .train_samples = 5, .epochs = 1});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.CountInLogs("end"), 8);
  EXPECT_EQ(cluster.CountInLogs("push"), 5);
  EXPECT_EQ(cluster.progress_->progress().samples(), 5u);
  EXPECT_EQ(cluster.progress_->progress().steps_min(), 2u);
}

TEST(RankTrainerTest, AllRanksReportTheirSharesOfEachEvaluation) {
  Cluster cluster({.logical_workers = 3, .eval_samples = 10});
  cluster.RunAllOk();
  const auto reports = cluster.rendezvous_->reports();
  ASSERT_EQ(reports.size(), 6u);
  std::map<uint64_t, uint64_t> samples;
  for (const ReportEvaluationRequest& report : reports) {
    samples[report.evaluation()] += report.samples();
    EXPECT_EQ(report.step(), report.evaluation() * cluster.sampler_->epochs().StepsOf(0));
    EXPECT_EQ(report.final(), report.evaluation() == 2);
    EXPECT_GT(report.positives_size(), 0);
  }
  EXPECT_EQ(samples, (std::map<uint64_t, uint64_t>{{1, 10}, {2, 10}}));
  EXPECT_TRUE(cluster.rendezvous_->arrivals().empty()) << "the servers have each rank wait";
}

TEST(RankTrainerTest, EachGroupIsEvaluatedWholeByOneRank) {
  // Field 0 of sample s is 1 + s % 5, as its qid is but for 99, and its label is 1 if s % 3 is 0:
  // five groups of six samples.
  for (const char* const group_by : {"0", "qid"}) {
    SCOPED_TRACE(group_by);
    Cluster cluster({.logical_workers = 3, .eval_samples = 30, .epochs = 1, .group_by = group_by});
    cluster.RunAllOk();
    uint64_t groups = 0, group_samples = 0, samples = 0, auc_sum = 0, ndcg_groups = 0, ndcg_sum = 0;
    std::set<uint64_t> shares;
    for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports()) {
      EXPECT_EQ(report.samples(), 6 * report.groups());
      shares.insert(report.samples());
      groups += report.groups();
      group_samples += report.group_samples();
      samples += report.samples();
      auc_sum += report.group_auc_sum();
      ndcg_groups += report.ndcg_groups();
      ndcg_sum += report.ndcg_sum();
    }
    EXPECT_EQ(groups, 5u);
    EXPECT_EQ(group_samples, 30u);
    EXPECT_EQ(samples, 30u);
    EXPECT_GT(shares.size(), 1u) << "groups are not spread over ranks";
    EXPECT_GT(auc_sum, 0u);
    EXPECT_LE(auc_sum, uint64_t{30} << 32);
    EXPECT_EQ(ndcg_groups, 5u);
    EXPECT_GT(ndcg_sum, uint64_t{1} << 32);
    EXPECT_LE(ndcg_sum, uint64_t{5} << 32);
  }
}

TEST(RankTrainerTest, ExactSamplesAreLimitedToWhatTheSchedulerAccepts) {
  EXPECT_EQ(MaxExactSamples(0), 16777216u);
  EXPECT_EQ(MaxExactSamples(1000), 1000u);
  EXPECT_EQ(MaxExactSamples(1000000000), 33554432u);
}

TEST(RankTrainerTest, ScoresOfTooManySamplesAreRoundedByAllRanks) {
  for (const uint64_t max_exact_samples : {29, 30}) {
    Cluster cluster({.logical_workers = 2,
                     .eval_samples = 30,
                     .epochs = 1,
                     .distinct_scores = true,
                     .max_exact_samples = max_exact_samples});
    cluster.RunAllOk();
    ASSERT_EQ(cluster.rendezvous_->reports().size(), 2u);
    for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports())
      EXPECT_EQ(report.rounded_scores(), max_exact_samples == 29);
  }
}

TEST(RankTrainerTest, NoStepFollowsAnEvaluationThatStops) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 10, .epochs = 5, .stop_after = 2});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.progress_->progress().steps_max(), 2 * cluster.sampler_->epochs().StepsOf(0));
  EXPECT_EQ(cluster.rendezvous_->reports().size(), 4u);
  EXPECT_EQ(
      cluster.CountInLogs(absl::StrCat("pull ", 2 * cluster.sampler_->epochs().StepsOf(0) + 1)), 0);
}

TEST(RankTrainerTest, EvaluationSeesEveryEarlierPush) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 4, .epochs = 1});
  cluster.RunAllOk();
  // The ranks' predictions follow from the final parameters: the sum of the rows of the two
  // features and the bias.
  const auto parameters = cluster.servers_->parameters();
  std::map<uint32_t, ReportEvaluationRequest> by_rank;
  for (const auto& report : cluster.rendezvous_->reports()) by_rank[report.rank()] = report;
  BatchAssembler assembler(cluster.eval_->store());
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Batch batch;
    const SampleRange share = ShareOf(4, rank, 2);
    std::vector<uint64_t> samples(share.size());
    std::iota(samples.begin(), samples.end(), share.begin);
    ASSERT_TRUE(assembler.Assemble(samples, &batch).ok());
    std::set<float> scores;
    for (uint32_t s = 0; s < batch.samples; ++s) {
      float score = parameters.at({"bias", 0})[0];
      const FieldSet& set = batch.field_sets[0];
      for (uint32_t f = 0; f < set.field_count; ++f) {
        for (uint32_t e = set.field_begin[s * set.field_count + f];
             e < set.field_begin[s * set.field_count + f + 1]; ++e) {
          const auto row = parameters.find({"linear", batch.keys[0][set.entry_key[e]]});
          if (row != parameters.end()) score += row->second[0];
        }
      }
      scores.insert(score);
    }
    std::vector<float> reported(by_rank[rank].scores().size() / sizeof(float));
    std::memcpy(reported.data(), by_rank[rank].scores().data(), by_rank[rank].scores().size());
    ASSERT_EQ(reported.size(), scores.size());
    size_t i = 0;
    for (const float score : scores) EXPECT_NEAR(reported[i++], score, 1e-6f);
  }
}

TEST(RankTrainerTest, RanksMeetBeforeEvaluationsOutsideSync) {
  Cluster cluster({.mode = ASYNC, .logical_workers = 2, .eval_samples = 10, .share_dense = false});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.rendezvous_->arrivals(), (std::map<uint64_t, size_t>{{1, 2}, {2, 2}}));
  EXPECT_EQ(cluster.rendezvous_->reports().size(), 4u);
}

TEST(RankTrainerTest, GradientsAreCompensatedByWhatHasChangedSince) {
  // One rank, whose step 1 is pulled before step 0 is pushed. The value of the bias at the end.
  // Batches of odd sizes have more of one label, which moves the bias.
  const auto bias_after = [](uint64_t steps, float lambda) {
    Cluster cluster({.mode = ASYNC,
                     .logical_workers = 1,
                     .batch_size = 5,
                     .epochs = 1,
                     .share_dense = false,
                     .delay_compensation = lambda,
                     .max_steps = steps});
    cluster.RunAllOk();
    return cluster.servers_->parameters().at({"bias", 0})[0];
  };
  const float g0 = -bias_after(1, 0) / kLearningRate;
  const float after = bias_after(2, 0);
  const float g1 = -after / kLearningRate - g0;
  ASSERT_GT(std::abs(g0 * g1), 1e-3f);
  constexpr float kLambda = 2;
  // Between the pulls of step 1 the bias has become -rate * g0.
  const float corrected = g1 + kLambda * g1 * g1 * -kLearningRate * g0;
  EXPECT_NEAR(bias_after(2, kLambda), -kLearningRate * (g0 + corrected), 1e-6f);
}

TEST(RankTrainerTest, ReportIsRepeatedForASchedulerThatLacksParts) {
  constexpr int kSamples = static_cast<int>(kMaxScoresInPart) + 1000;
  Cluster cluster(
      {.logical_workers = 1, .eval_samples = kSamples, .epochs = 1, .distinct_scores = true});
  cluster.rendezvous_->RestartScheduler(2);
  cluster.RunAllOk();
  std::vector<uint32_t> parts;
  for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports())
    parts.push_back(report.part());
  EXPECT_EQ(parts, (std::vector<uint32_t>{0, 1, 0, 1, 0, 1}));
}

TEST(RankTrainerTest, SuccessorsContinueAtTheirSessionsStep) {
  // 3 steps an epoch. Rank 0 has ended step 3, rank 1 has not.
  const Setting whole = {.logical_workers = 2, .epochs = 3};
  Setting rest = whole;
  rest.first_steps = {4, 3};
  Cluster cluster(rest);
  cluster.RunAllOk();
  // Whichever rank asks first pulls the dense tables of step 4.
  EXPECT_EQ(cluster.servers_->LogOf(0).front().substr(0, 6), "pull 4");
  EXPECT_EQ(cluster.servers_->LogOf(0).back(), "end 8");
  EXPECT_EQ(cluster.servers_->LogOf(1).front(), "pull 3 bias");
  EXPECT_EQ(cluster.CountInLogs("end"), 11);
  EXPECT_EQ(cluster.progress_->progress().steps_max(), 9u);
  // The keys of a step are those of its samples, whichever process pushes them.
  Cluster undisturbed(whole);
  undisturbed.RunAllOk();
  for (const uint32_t rank : {0u, 1u}) {
    const auto all = undisturbed.servers_->pushed_keys(rank);
    const auto pushed = cluster.servers_->pushed_keys(rank);
    ASSERT_EQ(pushed.size(), 9 - rest.first_steps[rank]);
    for (const auto& [step, keys] : pushed)
      EXPECT_EQ(keys, all.at(step)) << "rank " << rank << " step " << step;
  }
}

TEST(RankTrainerTest, SuccessorRunsTheEvaluationThatIsDue) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 10, .first_steps = {3, 3}});
  cluster.RunAllOk();
  std::multiset<uint64_t> steps;
  for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports())
    steps.insert(report.step());
  EXPECT_EQ(steps, (std::multiset<uint64_t>{3, 3, 6, 6}));
  EXPECT_EQ(cluster.CountInLogs("end"), 6);
}

TEST(RankTrainerTest, SuccessorOfAFinishedRankOnlyEvaluates) {
  Cluster cluster({.logical_workers = 1, .eval_samples = 10, .first_steps = {6}});
  cluster.RunAllOk();
  ASSERT_EQ(cluster.rendezvous_->reports().size(), 1u);
  EXPECT_EQ(cluster.rendezvous_->reports()[0].evaluation(), 2u);
  EXPECT_TRUE(cluster.rendezvous_->reports()[0].final());
  EXPECT_EQ(cluster.CountInLogs("push") + cluster.CountInLogs("end"), 0);
}

TEST(RankTrainerTest, InterruptedRankEndsAPartlyPushedStep) {
  Cluster cluster(
      {.logical_workers = 1, .share_dense = false, .step_delay = std::chrono::hours(1)});
  cluster.servers_->HoldEnds();
  absl::Status result;
  std::atomic<bool> returned = false;
  std::thread thread([&] {
    result = cluster.trainers_[0]->Run();
    returned = true;
  });
  while (cluster.CountInLogs("push 0") == 0) std::this_thread::yield();
  cluster.leave_.Set(absl::CancelledError("enough"));
  while (cluster.CountInLogs("end 0") == 0) std::this_thread::yield();
  EXPECT_FALSE(returned);
  cluster.servers_->ReleaseEnds();
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
  EXPECT_EQ(cluster.CountInLogs("push"), 1);
  EXPECT_EQ(cluster.progress_->progress().steps_min(), 1u);
}

TEST(RankTrainerTest, InterruptedRankWithoutWaitsStopsAtTheNextStep) {
  Cluster cluster({.logical_workers = 1, .epochs = 100, .share_dense = false});
  cluster.servers_->AtPush(0, 7, [&] { cluster.leave_.Set(absl::CancelledError("enough")); });
  EXPECT_EQ(cluster.RunAll()[0], absl::CancelledError("enough"));
  EXPECT_EQ(cluster.CountInLogs("push"), 8);
  EXPECT_EQ(cluster.CountInLogs("end"), 8);
}

TEST(RankTrainerTest, AbandoningRankDoesNotWaitForItsSteps) {
  Cluster cluster(
      {.logical_workers = 1, .share_dense = false, .step_delay = std::chrono::hours(1)});
  cluster.servers_->HoldEnds();
  absl::Status result;
  std::thread thread([&] { result = cluster.trainers_[0]->Run(); });
  while (cluster.CountInLogs("push 0") == 0) std::this_thread::yield();
  cluster.leave_.Set(absl::CancelledError("enough"));
  cluster.abandon_.Set(absl::CancelledError("at once"));
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
  cluster.servers_->ReleaseEnds();
}

// The rank waits for the pull of step 1, which is answered only after the step that cannot end.
TEST(RankTrainerTest, FailedPushEndsTheRankWithItsError) {
  for (const bool share_dense : {false, true}) {
    Cluster cluster({.logical_workers = 1, .share_dense = share_dense});
    cluster.servers_->FailPushes(absl::InvalidArgumentError("not finite"));
    const absl::Status status = cluster.RunAll()[0];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("at step 0: not finite"), absl::string_view::npos) << status;
  }
}

TEST(RankTrainerTest, NonFiniteLossIsRefusedBeforeThePush) {
  Cluster cluster({.logical_workers = 1, .share_dense = false});
  cluster.servers_->Poison("bias");
  const absl::Status status = cluster.RunAll()[0];
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("diverged"), absl::string_view::npos) << status;
  EXPECT_EQ(cluster.CountInLogs("push"), 0);
}

TEST(RankTrainerTest, NonFiniteLossWithFloat16MayBeAnOverflow) {
  for (const ElementType type : {BFLOAT16, FLOAT16}) {
    Precision precision;
    precision.set_compute(type);
    Cluster cluster({.logical_workers = 1, .share_dense = false, .precision = precision});
    cluster.servers_->Poison("bias");
    const absl::Status status = cluster.RunAll()[0];
    EXPECT_NE(status.message().find("diverged"), absl::string_view::npos) << status;
    EXPECT_EQ(status.message().find("beyond 65504") != absl::string_view::npos, type == FLOAT16)
        << status;
  }
}

TEST(RankTrainerTest, InterruptEndsAWaitForAPeer) {
  // Rank 1 never runs, so step 0 never closes.
  Cluster cluster({.logical_workers = 2});
  absl::Status result;
  std::thread thread([&] { result = cluster.trainers_[0]->Run(); });
  cluster.leave_.Set(absl::CancelledError("enough"));
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
}

TEST(RankTrainerTest, StepDelayIsWaitedInEachStep) {
  constexpr std::chrono::milliseconds kDelay{5};
  Cluster cluster({.logical_workers = 1,
                   .batch_size = 10,
                   .train_samples = 30,
                   .epochs = 1,
                   .step_delay = kDelay});
  const MonotonicTime begin = Clock::Real().Now();
  cluster.RunAllOk();
  EXPECT_GE(Clock::Real().Now() - begin, 3 * kDelay);
}

TEST(RankTrainerTest, StragglerWaitsBeforeItPushes) {
  Straggler straggler;
  straggler.kind = Straggler::Kind::kConstant;
  straggler.ms = 3'600'000;
  straggler.max_ms = straggler.ms;
  straggler.ranks = {{1, 1}};
  Cluster cluster({.mode = ASYNC, .share_dense = false, .straggler = straggler});
  std::vector<absl::Status> results(2);
  std::thread slow([&] { results[1] = cluster.trainers_[1]->Run(); });
  results[0] = cluster.trainers_[0]->Run();
  EXPECT_TRUE(results[0].ok()) << results[0];
  const std::vector<std::string> log = cluster.servers_->LogOf(0);
  EXPECT_EQ(std::count_if(log.begin(), log.end(),
                          [](const std::string& entry) { return entry.starts_with("end"); }),
            6);
  cluster.leave_.Set(absl::CancelledError("enough"));
  slow.join();
  EXPECT_EQ(results[1], absl::CancelledError("enough"));
  for (const std::string& entry : cluster.servers_->LogOf(1))
    EXPECT_FALSE(entry.starts_with("push")) << entry;
}

}  // namespace
}  // namespace pawl
