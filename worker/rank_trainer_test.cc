#include "worker/rank_trainer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/device/open_device.h"
#include "worker/evaluation_report.h"

namespace pawl {
namespace {

constexpr float kLearningRate = 0.25f;

// The servers of a job in one object: SGD on all tables, calls answered on the thread that makes
// them ready, SYNC as in the design (a step closes when all ranks have ended it).
class FakeServers {
 public:
  // `clocks`: the step that each rank begins with.
  FakeServers(ConsistencyMode mode, std::vector<uint64_t> clocks) : mode_(mode), clocks_(std::move(clocks)) {}

  struct PullCall {
    uint32_t rank;
    uint64_t step;
    std::vector<PullItem> items;
    Callback done;
  };

  void Pull(PullCall call) {
    std::vector<std::pair<Callback, absl::Status>> answers;
    {
      MutexLock lock(mu_);
      Log(call.rank, absl::StrCat("pull ", call.step, TableNames(call.items)));
      pulls_.push_back(std::move(call));
      AnswerPulls(answers);
    }
    for (auto& [done, status] : answers) done(status);
  }

  void Push(uint32_t rank, uint64_t step, absl::Span<const PushItem> items, Callback done) {
    absl::Status status;
    std::function<void()> action;
    {
      MutexLock lock(mu_);
      Log(rank, absl::StrCat("push ", step));
      std::string& bytes = pushed_[rank];
      for (const PushItem& item : items) {
        std::vector<uint64_t>& keys = pushed_keys_[rank][step];
        keys.insert(keys.end(), item.keys.begin(), item.keys.end());
        bytes.append(reinterpret_cast<const char*>(item.keys.data()), item.keys.size() * sizeof(uint64_t));
        bytes.append(reinterpret_cast<const char*>(item.gradients.data()), item.gradients.size() * sizeof(float));
        waiting_[step][rank].push_back({item.table.name(),
                                        item.table.dense() ? 0 : item.table.row_width(),
                                        {item.keys.begin(), item.keys.end()},
                                        {item.gradients.begin(), item.gradients.end()}});
      }
      if (mode_ != SYNC) Apply(step, 1.0f);
      status = push_failure_;
      if (const auto found = at_push_.find({rank, step}); found != at_push_.end()) action = found->second;
    }
    if (action != nullptr) action();
    done(status);
  }

  void EndStep(uint32_t rank, uint64_t step, Callback done) {
    std::vector<std::pair<Callback, absl::Status>> answers;
    absl::Status broken;
    {
      MutexLock lock(mu_);
      Log(rank, absl::StrCat("end ", step));
      broken = push_failure_;
    }
    // As the client library does it.
    if (!broken.ok()) return done(broken);
    {
      MutexLock lock(mu_);
      if (hold_ends_) {
        held_ends_.push_back([this, rank, step, done = std::move(done)]() mutable { EndStep(rank, step, std::move(done)); });
        return;
      }
    }
    {
      MutexLock lock(mu_);
      EXPECT_EQ(clocks_[rank], step);
      clocks_[rank] = step + 1;
      if (mode_ == SYNC && *std::min_element(clocks_.begin(), clocks_.end()) == step + 1) {
        Apply(step, 1.0f / static_cast<float>(clocks_.size()));
      }
      AnswerPulls(answers);
    }
    done(absl::OkStatus());
    for (auto& [d, status] : answers) d(status);
  }

  // Runs `action` in the rank's push of this step.
  void AtPush(uint32_t rank, uint64_t step, std::function<void()> action) {
    MutexLock lock(mu_);
    at_push_[{rank, step}] = std::move(action);
  }
  // Ends of steps are taken, but nothing comes of them until they are released.
  void HoldEnds() {
    MutexLock lock(mu_);
    hold_ends_ = true;
  }
  void ReleaseEnds() {
    std::vector<absl::AnyInvocable<void()>> held;
    {
      MutexLock lock(mu_);
      hold_ends_ = false;
      held.swap(held_ends_);
    }
    for (auto& end : held) end();
  }
  // By step.
  std::map<uint64_t, std::vector<uint64_t>> pushed_keys(uint32_t rank) {
    MutexLock lock(mu_);
    return pushed_keys_[rank];
  }
  void FailPushes(absl::Status status) {
    MutexLock lock(mu_);
    push_failure_ = std::move(status);
  }
  // The dense table `name` has a value that is not a number.
  void Poison(const std::string& name) {
    MutexLock lock(mu_);
    parameters_[{name, 0}] = {std::numeric_limits<float>::quiet_NaN()};
  }
  std::vector<std::string> LogOf(uint32_t rank) {
    MutexLock lock(mu_);
    return logs_[rank];
  }
  std::map<uint32_t, std::string> pushed() {
    MutexLock lock(mu_);
    return pushed_;
  }
  std::map<std::pair<std::string, uint64_t>, std::vector<float>> parameters() {
    MutexLock lock(mu_);
    return parameters_;
  }

 private:
  struct Gradient {
    std::string table;
    uint64_t row_width;  // 0: dense
    std::vector<uint64_t> keys;
    std::vector<float> values;
  };

  static std::string TableNames(absl::Span<const PullItem> items) {
    std::string names;
    for (const PullItem& item : items) absl::StrAppend(&names, " ", item.table.name());
    return names;
  }
  void Log(uint32_t rank, std::string what) PAWL_REQUIRES(mu_) { logs_[rank].push_back(std::move(what)); }

  void Apply(uint64_t step, float scale) PAWL_REQUIRES(mu_) {
    // Ranks ascending: the map's order.
    std::map<std::pair<std::string, uint64_t>, std::vector<float>> sums;
    for (const auto& [rank, gradients] : waiting_[step]) {
      for (const Gradient& gradient : gradients) {
        const size_t width = gradient.row_width == 0 ? gradient.values.size() : gradient.row_width;
        for (size_t i = 0; i * width < gradient.values.size(); ++i) {
          std::vector<float>& sum = sums[{gradient.table, gradient.row_width == 0 ? 0 : gradient.keys[i]}];
          sum.resize(width);
          for (size_t j = 0; j < width; ++j) sum[j] += gradient.values[i * width + j];
        }
      }
    }
    for (const auto& [key, sum] : sums) {
      std::vector<float>& row = parameters_[key];
      row.resize(sum.size());
      for (size_t j = 0; j < sum.size(); ++j) row[j] -= kLearningRate * (scale * sum[j]);
    }
    waiting_.erase(step);
  }

  void AnswerPulls(std::vector<std::pair<Callback, absl::Status>>& answers) PAWL_REQUIRES(mu_) {
    const uint64_t version = *std::min_element(clocks_.begin(), clocks_.end());
    for (auto it = pulls_.begin(); it != pulls_.end();) {
      if (mode_ == SYNC && it->step > version) {
        ++it;
        continue;
      }
      for (PullItem& item : it->items) {
        if (item.table.dense()) {
          Read(item.table.name(), 0, item.values);
        } else {
          for (size_t i = 0; i < item.keys.size(); ++i) {
            Read(item.table.name(), item.keys[i],
                 item.values.subspan(i * item.table.row_width(), item.table.row_width()));
          }
        }
      }
      answers.emplace_back(std::move(it->done), absl::OkStatus());
      it = pulls_.erase(it);
    }
  }
  void Read(const std::string& table, uint64_t key, absl::Span<float> out) PAWL_REQUIRES(mu_) {
    const auto row = parameters_.find({table, key});
    if (row == parameters_.end()) {
      std::fill(out.begin(), out.end(), 0.0f);
    } else {
      std::copy(row->second.begin(), row->second.end(), out.begin());
    }
  }

  const ConsistencyMode mode_;
  Mutex mu_;
  std::vector<uint64_t> clocks_ PAWL_GUARDED_BY(mu_);
  std::vector<PullCall> pulls_ PAWL_GUARDED_BY(mu_);
  std::map<uint64_t, std::map<uint32_t, std::vector<Gradient>>> waiting_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, uint64_t>, std::vector<float>> parameters_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::vector<std::string>> logs_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::string> pushed_ PAWL_GUARDED_BY(mu_);
  absl::Status push_failure_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::map<uint64_t, std::vector<uint64_t>>> pushed_keys_ PAWL_GUARDED_BY(mu_);
  std::map<std::pair<uint32_t, uint64_t>, std::function<void()>> at_push_ PAWL_GUARDED_BY(mu_);
  bool hold_ends_ PAWL_GUARDED_BY(mu_) = false;
  std::vector<absl::AnyInvocable<void()>> held_ends_ PAWL_GUARDED_BY(mu_);
};

class FakeLogicalWorker final : public LogicalWorker {
 public:
  FakeLogicalWorker(FakeServers& servers, uint32_t rank, uint64_t first_step)
      : servers_(servers), rank_(rank), step_(first_step) {}

  void Push(absl::Span<const PushItem> items, const CallOptions&, Callback done) override {
    servers_.Push(rank_, step_, items, std::move(done));
  }
  void Pull(absl::Span<const PullItem> items, const CallOptions& options, Callback done) override {
    servers_.Pull({rank_, options.step.value_or(step_), {items.begin(), items.end()}, std::move(done)});
  }
  void PushPull(absl::Span<const PushItem>, absl::Span<const PullItem>, const CallOptions&, Callback done) override {
    done(absl::UnimplementedError("not used by a rank"));
  }
  uint32_t rank() const override { return rank_; }
  uint64_t step() const override { return step_; }
  void EndStep(const CallOptions&, Callback done) override { servers_.EndStep(rank_, step_++, std::move(done)); }

 private:
  FakeServers& servers_;
  const uint32_t rank_;
  uint64_t step_;
};

// Answers when all ranks are there.
class FakeRendezvous final : public Rendezvous {
 public:
  FakeRendezvous(uint32_t ranks, uint64_t stop_after) : ranks_(ranks), stop_after_(stop_after) {}

  std::future<absl::Status> Barrier(const std::string& name, uint32_t parties, uint32_t party) override {
    MutexLock lock(mu_);
    EXPECT_EQ(parties, ranks_);
    std::vector<std::promise<absl::Status>>& waiting = barriers_[name];
    barrier_names_.insert(name);
    std::promise<absl::Status> promise;
    auto future = promise.get_future();
    if (broken_barriers_.contains(name)) {
      promise.set_value(absl::AbortedError("a party died"));
      return future;
    }
    waiting.push_back(std::move(promise));
    if (waiting.size() == ranks_) {
      for (auto& each : waiting) each.set_value(absl::OkStatus());
    }
    return future;
  }

  std::future<absl::StatusOr<ReportEvaluationResponse>> ReportEvaluation(ReportEvaluationRequest request) override {
    MutexLock lock(mu_);
    std::promise<absl::StatusOr<ReportEvaluationResponse>> promise;
    auto future = promise.get_future();
    const uint64_t evaluation = request.evaluation();
    const bool last_part = request.part() + 1 == request.parts();
    reports_.push_back(std::move(request));
    if (last_part && restarts_ > 0) {
      --restarts_;
      promise.set_value(absl::FailedPreconditionError("send all of them again"));
      return future;
    }
    if (!last_part) {
      promise.set_value(ReportEvaluationResponse());
      return future;
    }
    auto& waiting = evaluations_[evaluation];
    waiting.push_back(std::move(promise));
    if (waiting.size() == ranks_) {
      ReportEvaluationResponse response;
      response.set_stop(evaluation == stop_after_);
      for (auto& each : waiting) each.set_value(response);
    }
    return future;
  }

  // Barriers of this name have failed.
  void BreakBarrier(const std::string& name) {
    MutexLock lock(mu_);
    broken_barriers_.insert(name);
  }
  // So often the last part finds a scheduler that does not know the parts before it.
  void RestartScheduler(int times) {
    MutexLock lock(mu_);
    restarts_ = times;
  }
  std::vector<ReportEvaluationRequest> reports() {
    MutexLock lock(mu_);
    return reports_;
  }
  std::set<std::string> barrier_names() {
    MutexLock lock(mu_);
    return barrier_names_;
  }

 private:
  const uint32_t ranks_;
  const uint64_t stop_after_;
  Mutex mu_;
  std::map<std::string, std::vector<std::promise<absl::Status>>> barriers_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> barrier_names_ PAWL_GUARDED_BY(mu_);
  std::map<uint64_t, std::vector<std::promise<absl::StatusOr<ReportEvaluationResponse>>>> evaluations_
      PAWL_GUARDED_BY(mu_);
  std::vector<ReportEvaluationRequest> reports_ PAWL_GUARDED_BY(mu_);
  std::set<std::string> broken_barriers_ PAWL_GUARDED_BY(mu_);
  int restarts_ PAWL_GUARDED_BY(mu_) = 0;
};

std::string WriteFile(const std::string& name, int samples, bool distinct = false) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream file(path);
  for (int s = 0; s < samples; ++s) {
    file << (s % 3 == 0) << " " << 1 + s % 5 << ":" << (distinct ? 1 + s : 1) << " " << 10 + s % 7 << ":1\n";
  }
  return path;
}

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
  // By rank; empty: 0.
  std::vector<uint64_t> first_steps = {};
  // Each evaluation sample has a score of its own.
  bool distinct_scores = false;
};

// All ranks of a job in this process, over the fakes. The members that tests look at are public.
class Cluster {
 public:
  explicit Cluster(const Setting& setting) {
    job_.set_name("test");
    job_.set_seed(7);
    job_.set_batch_size(setting.batch_size);
    job_.set_epochs(setting.epochs);
    job_.set_logical_workers(setting.logical_workers);
    job_.mutable_consistency()->set_mode(setting.mode);
    job_.mutable_data()->set_format(LIBSVM);
    job_.mutable_data()->set_train(WriteFile("train", setting.train_samples));
    train_ = Dataset::Load(job_.data(), job_.data().train()).value();
    if (setting.eval_samples > 0) {
      job_.mutable_data()->set_eval(WriteFile("eval", setting.eval_samples, setting.distinct_scores));
      eval_ = Dataset::Load(job_.data(), job_.data().eval()).value();
    }
    job_.mutable_model()->mutable_logistic_regression();
    job_.mutable_optimizer()->mutable_sgd()->set_learning_rate(kLearningRate);

    Sampler::Options sampling;
    sampling.samples = train_->size();
    sampling.batch_size = job_.batch_size();
    sampling.logical_workers = setting.logical_workers;
    sampling.seed = job_.seed();
    sampler_.emplace(Sampler::Create(sampling).value());
    plan_.emplace(job_, sampler_->steps_per_epoch());
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
      progress_->Begin(rank, first_steps[rank], sampler_->SamplesBefore(first_steps[rank], rank));
      trainers_.push_back(std::make_unique<RankTrainer>(
          SharedFor(setting), *sessions_.back(), TrainingModel::Create(job_, train_->shape(), *device_).value()));
    }
  }

  RankTrainer::Shared SharedFor(const Setting& setting) {
    return {.job = job_,
            .logical_workers = setting.logical_workers,
            .sampler = *sampler_,
            .plan = *plan_,
            .train = *train_,
            .eval = eval_.get(),
            .tables = tables_,
            .dense = dense_.get(),
            .rendezvous = *rendezvous_,
            .progress = *progress_,
            .interrupt = interrupt_,
            .abandon = abandon_,
            .step_delay = setting.step_delay};
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
      for (const std::string& entry : servers_->LogOf(rank)) count += entry.find(what) != std::string::npos;
    }
    return count;
  }

  std::unique_ptr<Device> device_ = OpenDevice("cpu").value();
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
  Interrupt interrupt_;
  Interrupt abandon_;
  std::vector<std::unique_ptr<FakeLogicalWorker>> sessions_;
  std::vector<std::unique_ptr<RankTrainer>> trainers_;
};

TEST(GradientScaleTest, SyncDividesBySamplesOfTheStepAndUndoesTheMeanOverRanks) {
  EXPECT_EQ(GradientScale(SYNC, 4, 4096, 1024), 4.0f / 4096.0f);
  EXPECT_EQ(GradientScale(SYNC, 3, 100, 34), static_cast<float>(3.0 / 100.0));
  EXPECT_EQ(GradientScale(SYNC, 3, 100, 33), GradientScale(SYNC, 3, 100, 34));
}

TEST(GradientScaleTest, OtherModesDivideByTheRanksOwnSamples) {
  EXPECT_EQ(GradientScale(ASYNC, 4, 4096, 1000), 1.0f / 1000.0f);
  EXPECT_EQ(GradientScale(BOUNDED, 4, 4096, 1000), 1.0f / 1000.0f);
}

TEST(RankTrainerTest, PullsTheNextStepBeforeItPushesThisOne) {
  Cluster cluster({.logical_workers = 1, .batch_size = 10, .train_samples = 30, .epochs = 1, .share_dense = false});
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

TEST(RankTrainerTest, SharingTheDenseTablesChangesNoPushAndNoParameter) {
  Cluster together({.logical_workers = 4, .epochs = 5});
  together.RunAllOk();
  Cluster apart({.logical_workers = 4, .epochs = 5, .share_dense = false});
  apart.RunAllOk();
  EXPECT_EQ(together.servers_->pushed(), apart.servers_->pushed());
  EXPECT_EQ(together.servers_->parameters(), apart.servers_->parameters());
}

TEST(RankTrainerTest, ARankWithoutSamplesEndsItsStepsAndPushesNothing) {
  // Steps of 3 samples for 4 ranks, the last one of 2.
  Cluster cluster({.logical_workers = 4, .batch_size = 3, .train_samples = 5, .epochs = 1});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.CountInLogs("end"), 8);
  EXPECT_EQ(cluster.CountInLogs("push"), 5);
  EXPECT_EQ(cluster.progress_->progress().samples(), 5u);
  EXPECT_EQ(cluster.progress_->progress().steps_min(), 2u);
}

TEST(RankTrainerTest, AllRanksReportEachEvaluationWithTheirShares) {
  Cluster cluster({.logical_workers = 3, .eval_samples = 10});
  cluster.RunAllOk();
  const auto reports = cluster.rendezvous_->reports();
  ASSERT_EQ(reports.size(), 6u);
  std::map<uint64_t, uint64_t> samples;
  for (const ReportEvaluationRequest& report : reports) {
    samples[report.evaluation()] += report.samples();
    EXPECT_EQ(report.step(), report.evaluation() * cluster.sampler_->steps_per_epoch());
    EXPECT_EQ(report.final(), report.evaluation() == 2);
    EXPECT_GT(report.positives_size(), 0);
  }
  EXPECT_EQ(samples, (std::map<uint64_t, uint64_t>{{1, 10}, {2, 10}}));
  EXPECT_TRUE(cluster.rendezvous_->barrier_names().empty());
}

TEST(RankTrainerTest, NoStepFollowsAnEvaluationThatSaysStop) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 10, .epochs = 5, .stop_after = 2});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.progress_->progress().steps_max(), 2 * cluster.sampler_->steps_per_epoch());
  EXPECT_EQ(cluster.rendezvous_->reports().size(), 4u);
  EXPECT_EQ(cluster.CountInLogs(absl::StrCat("pull ", 2 * cluster.sampler_->steps_per_epoch() + 1)), 0);
}

TEST(RankTrainerTest, AnEvaluationSeesEveryPushBeforeIt) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 4, .epochs = 1});
  cluster.RunAllOk();
  // What the ranks predicted is what the final parameters say: the sum of the row of each of the two features and the
  // bias.
  const auto parameters = cluster.servers_->parameters();
  std::map<uint32_t, ReportEvaluationRequest> by_rank;
  for (const auto& report : cluster.rendezvous_->reports()) by_rank[report.rank()] = report;
  BatchAssembler assembler(*cluster.eval_);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    Batch batch;
    ASSERT_TRUE(assembler.AssembleRange(EvaluationShard(4, rank, 2), &batch).ok());
    std::set<float> scores;
    for (uint32_t s = 0; s < batch.samples; ++s) {
      float score = parameters.at({"bias", 0})[0];
      for (uint32_t f = 0; f < batch.field_count; ++f) {
        for (uint32_t e = batch.field_begin[s * batch.field_count + f];
             e < batch.field_begin[s * batch.field_count + f + 1]; ++e) {
          const auto row = parameters.find({"linear", batch.keys[batch.entry_key[e]]});
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

TEST(RankTrainerTest, OutsideSyncRanksMeetBeforeTheyEvaluate) {
  Cluster cluster({.mode = ASYNC, .logical_workers = 2, .eval_samples = 10, .share_dense = false});
  cluster.RunAllOk();
  EXPECT_EQ(cluster.rendezvous_->barrier_names(), (std::set<std::string>{"evaluation-1", "evaluation-2"}));
}

TEST(RankTrainerTest, RanksMeetAgainWhereOneOfThemDied) {
  Cluster cluster({.mode = ASYNC, .logical_workers = 2, .eval_samples = 10, .epochs = 1, .share_dense = false});
  cluster.rendezvous_->BreakBarrier("evaluation-1");
  cluster.rendezvous_->BreakBarrier("evaluation-1-again-1");
  cluster.RunAllOk();
  EXPECT_EQ(cluster.rendezvous_->barrier_names(),
            (std::set<std::string>{"evaluation-1", "evaluation-1-again-1", "evaluation-1-again-2"}));
  EXPECT_EQ(cluster.rendezvous_->reports().size(), 2u);
}

TEST(RankTrainerTest, AnEvaluationIsReportedAgainToASchedulerThatLacksItsParts) {
  constexpr int kSamples = static_cast<int>(kMaxScoresInPart) + 1000;
  Cluster cluster({.logical_workers = 1, .eval_samples = kSamples, .epochs = 1, .distinct_scores = true});
  cluster.rendezvous_->RestartScheduler(2);
  cluster.RunAllOk();
  std::vector<uint32_t> parts;
  for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports()) parts.push_back(report.part());
  EXPECT_EQ(parts, (std::vector<uint32_t>{0, 1, 0, 1, 0, 1}));
}

TEST(RankTrainerTest, SuccessorsBeginWhereTheirSessionsAreWithTheSameSamples) {
  // 3 steps an epoch. Rank 0 has ended step 3, rank 1 has not.
  const Setting whole = {.logical_workers = 2, .epochs = 3};
  Setting rest = whole;
  rest.first_steps = {4, 3};
  Cluster cluster(rest);
  cluster.RunAllOk();
  // Whichever of them asks first pulls the dense tables of step 4.
  EXPECT_EQ(cluster.servers_->LogOf(0).front().substr(0, 6), "pull 4");
  EXPECT_EQ(cluster.servers_->LogOf(0).back(), "end 8");
  EXPECT_EQ(cluster.servers_->LogOf(1).front(), "pull 3 bias");
  EXPECT_EQ(cluster.CountInLogs("end"), 11);
  EXPECT_EQ(cluster.progress_->progress().steps_max(), 9u);
  // The keys of a step are those of its samples, whoever pushes them.
  Cluster undisturbed(whole);
  undisturbed.RunAllOk();
  for (const uint32_t rank : {0u, 1u}) {
    const auto all = undisturbed.servers_->pushed_keys(rank);
    const auto pushed = cluster.servers_->pushed_keys(rank);
    ASSERT_EQ(pushed.size(), 9 - rest.first_steps[rank]);
    for (const auto& [step, keys] : pushed) EXPECT_EQ(keys, all.at(step)) << "rank " << rank << " step " << step;
  }
}

TEST(RankTrainerTest, ASuccessorDoesTheEvaluationThatIsDueWhereItBegins) {
  Cluster cluster({.logical_workers = 2, .eval_samples = 10, .first_steps = {3, 3}});
  cluster.RunAllOk();
  std::multiset<uint64_t> steps;
  for (const ReportEvaluationRequest& report : cluster.rendezvous_->reports()) steps.insert(report.step());
  EXPECT_EQ(steps, (std::multiset<uint64_t>{3, 3, 6, 6}));
  EXPECT_EQ(cluster.CountInLogs("end"), 6);
}

TEST(RankTrainerTest, ASuccessorOfARankThatHasDoneAllStepsOnlyEvaluates) {
  Cluster cluster({.logical_workers = 1, .eval_samples = 10, .first_steps = {6}});
  cluster.RunAllOk();
  ASSERT_EQ(cluster.rendezvous_->reports().size(), 1u);
  EXPECT_EQ(cluster.rendezvous_->reports()[0].evaluation(), 2u);
  EXPECT_TRUE(cluster.rendezvous_->reports()[0].final());
  EXPECT_EQ(cluster.CountInLogs("push") + cluster.CountInLogs("end"), 0);
}

TEST(RankTrainerTest, AnInterruptedRankEndsTheStepOfWhichItHasPushedSomething) {
  Cluster cluster({.logical_workers = 1, .share_dense = false, .step_delay = std::chrono::hours(1)});
  cluster.servers_->HoldEnds();
  absl::Status result;
  std::atomic<bool> returned = false;
  std::thread thread([&] {
    result = cluster.trainers_[0]->Run();
    returned = true;
  });
  while (cluster.CountInLogs("push 0") == 0) std::this_thread::yield();
  cluster.interrupt_.Set(absl::CancelledError("enough"));
  while (cluster.CountInLogs("end 0") == 0) std::this_thread::yield();
  EXPECT_FALSE(returned);
  cluster.servers_->ReleaseEnds();
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
  EXPECT_EQ(cluster.CountInLogs("push"), 1);
  EXPECT_EQ(cluster.progress_->progress().steps_min(), 1u);
}

TEST(RankTrainerTest, AnInterruptedRankThatNeverHasToWaitBeginsNoFurtherStep) {
  Cluster cluster({.logical_workers = 1, .epochs = 100, .share_dense = false});
  cluster.servers_->AtPush(0, 7, [&] { cluster.interrupt_.Set(absl::CancelledError("enough")); });
  EXPECT_EQ(cluster.RunAll()[0], absl::CancelledError("enough"));
  EXPECT_EQ(cluster.CountInLogs("push"), 8);
  EXPECT_EQ(cluster.CountInLogs("end"), 8);
}

TEST(RankTrainerTest, ARankThatIsToAbandonItsStepsDoesNotWaitForThem) {
  Cluster cluster({.logical_workers = 1, .share_dense = false, .step_delay = std::chrono::hours(1)});
  cluster.servers_->HoldEnds();
  absl::Status result;
  std::thread thread([&] { result = cluster.trainers_[0]->Run(); });
  while (cluster.CountInLogs("push 0") == 0) std::this_thread::yield();
  cluster.interrupt_.Set(absl::CancelledError("enough"));
  cluster.abandon_.Set(absl::CancelledError("at once"));
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
  cluster.servers_->ReleaseEnds();
}

TEST(RankTrainerTest, AFailedPushEndsAllRanksOfTheProcess) {
  for (const bool share_dense : {false, true}) {
    Cluster cluster({.logical_workers = 2, .share_dense = share_dense});
    cluster.servers_->FailPushes(absl::InvalidArgumentError("not finite"));
    for (const absl::Status& status : cluster.RunAll()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("at step 0: not finite"), absl::string_view::npos) << status;
    }
  }
}

TEST(RankTrainerTest, ALossThatIsNotFiniteIsRefusedBeforeItIsPushed) {
  Cluster cluster({.logical_workers = 1, .share_dense = false});
  cluster.servers_->Poison("bias");
  const absl::Status status = cluster.RunAll()[0];
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("diverged"), absl::string_view::npos) << status;
  EXPECT_EQ(cluster.CountInLogs("push"), 0);
}

TEST(RankTrainerTest, AnInterruptEndsARankThatWaitsForAPeer) {
  // Rank 1 never runs, so step 0 never closes.
  Cluster cluster({.logical_workers = 2});
  absl::Status result;
  std::thread thread([&] { result = cluster.trainers_[0]->Run(); });
  cluster.interrupt_.Set(absl::CancelledError("enough"));
  thread.join();
  EXPECT_EQ(result, absl::CancelledError("enough"));
}

TEST(RankTrainerTest, AStepDelayIsWaitedInEachStep) {
  constexpr std::chrono::milliseconds kDelay{5};
  Cluster cluster({.logical_workers = 1, .batch_size = 10, .train_samples = 30, .epochs = 1, .step_delay = kDelay});
  const MonotonicTime begin = Clock::Real().Now();
  cluster.RunAllOk();
  EXPECT_GE(Clock::Real().Now() - begin, 3 * kDelay);
}

}  // namespace
}  // namespace pawl
