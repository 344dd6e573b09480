#include "worker/process/rank_host.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/no_more_threads.h"
#include "client_lib/client.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/testing/fake_cluster.h"
#include "gtest/gtest.h"
#include "worker/device/cpu/device.h"
#include "worker/process/failure_policy.h"
#include "worker/train/testing/trainer_fakes.h"

namespace pawl {
namespace {

constexpr uint32_t kRanks = 2;

// Serves assignments and records the reports about ranks. Forwards all other calls to `next`.
class AssigningScheduler final : public ControlChannel {
 public:
  explicit AssigningScheduler(std::shared_ptr<ControlChannel> rest) : rest_(std::move(rest)) {}

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override {
    {
      MutexLock lock(mu_);
      if (method == "/pawl.Scheduler/GetAssignment") {
        asked_newer_than_ = Parse<GetAssignmentRequest>(request).newer_than_version();
        pending_ = std::move(done);
        return AnswerLocked();
      }
      if (method == "/pawl.Scheduler/GiveUpRanks") {
        const auto ranks = Parse<GiveUpRanksRequest>(request).logical_workers();
        for (const LogicalWorkerAssignment& rank : ranks) given_up_.push_back(rank);
        if (late_reports_ > 0) return AnswerLateLocked(timeout, std::move(done));
        if (never_answers_) {
          unanswered_.push_back(std::move(done));
          return;
        }
      }
      if (method == "/pawl.Scheduler/FinishWork") {
        const auto ranks = Parse<FinishWorkRequest>(request).logical_workers();
        finished_.insert(finished_.end(), ranks.begin(), ranks.end());
        if (late_reports_ > 0) return AnswerLateLocked(timeout, std::move(done));
      }
    }
    rest_->Call(method, std::move(request), timeout, std::move(done));
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    rest_->After(delay, std::move(action));
  }
  void Shutdown() override {
    std::vector<Transport::Done> unanswered;
    {
      MutexLock lock(mu_);
      unanswered.swap(unanswered_);
      if (pending_ != nullptr) unanswered.push_back(std::exchange(pending_, nullptr));
    }
    for (Transport::Done& done : unanswered)
      done(absl::CancelledError("shut down"), IncomingMessage());
    rest_->Shutdown();
  }

  // Pairs of a rank and its incarnation.
  void Assign(const std::vector<std::pair<uint32_t, uint64_t>>& ranks) {
    MutexLock lock(mu_);
    assignment_.set_version(assignment_.version() + 1);
    assignment_.set_logical_workers_total(kRanks);
    assignment_.clear_logical_workers();
    for (const auto& [rank, incarnation] : ranks) {
      LogicalWorkerAssignment& assigned = *assignment_.add_logical_workers();
      assigned.set_rank(rank);
      assigned.set_incarnation(incarnation);
    }
    AnswerLocked();
  }
  // Whether the client has done what the last assignment requires, as far as that is immediate.
  bool IsAdopted() const {
    MutexLock lock(mu_);
    return asked_newer_than_ > 0 && asked_newer_than_ == assignment_.version();
  }
  // From now on the scheduler receives reports of released ranks and does not answer them.
  void StopAnswering() {
    MutexLock lock(mu_);
    never_answers_ = true;
  }
  // That many reports end with `answer` at their deadlines.
  void DelayReports(uint32_t reports, absl::Status answer) {
    MutexLock lock(mu_);
    late_reports_ = reports;
    late_answer_ = std::move(answer);
  }
  std::vector<LogicalWorkerAssignment> given_up() const {
    MutexLock lock(mu_);
    return given_up_;
  }
  std::vector<uint32_t> finished() const {
    MutexLock lock(mu_);
    return finished_;
  }

 private:
  template <typename Request>
  static Request Parse(const OutgoingMessage& message) {
    std::string bytes(message.bytes.size(), '\0');
    message.bytes.CopyTo(bytes.data());
    Request request;
    EXPECT_TRUE(request.ParseFromString(bytes));
    return request;
  }

  void AnswerLateLocked(MonotonicDuration timeout, Transport::Done done) PAWL_REQUIRES(mu_) {
    --late_reports_;
    rest_->After(timeout, [done = std::move(done), answer = late_answer_]() mutable {
      done(answer, IncomingMessage());
    });
  }

  void AnswerLocked() PAWL_REQUIRES(mu_) {
    if (pending_ == nullptr || asked_newer_than_ >= assignment_.version()) return;
    auto bytes = std::make_shared<std::string>(assignment_.SerializeAsString());
    rest_->After(MonotonicDuration::zero(),
                 [bytes, done = std::exchange(pending_, nullptr)]() mutable {
                   IncomingMessage message;
                   message.bytes.Append(bytes->data(), bytes->size());
                   message.owner = bytes;
                   done(absl::OkStatus(), std::move(message));
                 });
  }

  const std::shared_ptr<ControlChannel> rest_;
  mutable Mutex mu_;
  GetAssignmentResponse assignment_ PAWL_GUARDED_BY(mu_);
  uint64_t asked_newer_than_ PAWL_GUARDED_BY(mu_) = 0;
  Transport::Done pending_ PAWL_GUARDED_BY(mu_);
  std::vector<Transport::Done> unanswered_ PAWL_GUARDED_BY(mu_);
  bool never_answers_ PAWL_GUARDED_BY(mu_) = false;
  uint32_t late_reports_ PAWL_GUARDED_BY(mu_) = 0;
  absl::Status late_answer_ PAWL_GUARDED_BY(mu_);
  std::vector<LogicalWorkerAssignment> given_up_ PAWL_GUARDED_BY(mu_);
  std::vector<uint32_t> finished_ PAWL_GUARDED_BY(mu_);
};

// The data, but reads of rank 0 hang until Release.
class HangingData final : public TrainingData {
 public:
  explicit HangingData(const TrainingData& data) : data_(data) {}
  ~HangingData() override { Release(); }

  uint64_t size() const override { return data_.size(); }
  const DataShape& shape() const override { return data_.shape(); }
  uint64_t fingerprint() const override { return data_.fingerprint(); }
  std::unique_ptr<RankBatches> OpenRank(const Sampler& sampler, uint32_t rank, uint64_t end_step,
                                        const FieldLookup& lookup) const override {
    auto batches = data_.OpenRank(sampler, rank, end_step, lookup);
    if (rank != 0) return batches;
    return std::make_unique<HangingBatches>(*this, std::move(batches));
  }

  bool hangs() const { return hangs_; }
  void Release() {
    if (!is_released_.exchange(true)) release_.set_value();
  }

 private:
  class HangingBatches final : public RankBatches {
   public:
    HangingBatches(const HangingData& data, std::unique_ptr<RankBatches> batches)
        : data_(data), batches_(std::move(batches)) {}
    absl::Status Assemble(uint64_t step, Batch* batch) override {
      data_.hangs_ = true;
      data_.released_.wait();
      return batches_->Assemble(step, batch);
    }

   private:
    const HangingData& data_;
    const std::unique_ptr<RankBatches> batches_;
  };

  const TrainingData& data_;
  mutable std::atomic<bool> hangs_{false};
  std::atomic<bool> is_released_{false};
  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future().share();
};

// A host whose client talks to the fakes. Steps close without the other ranks.
class RankHostTest : public testing::Test {
 protected:
  RankHostTest() {
    cluster_.SetIntercept([this](const std::string&, Method method) {
      if (method == Method::kPush && refuses_push_.exchange(false))
        return absl::InvalidArgumentError("refused");
      // The client retries.
      if (method == Method::kTakeOver && delays_take_over_)
        return absl::UnavailableError("try again");
      if (method == Method::kTakeOver && refuses_take_over_)
        return absl::DataLossError("contradictory clocks");
      return absl::OkStatus();
    });
  }
  ~RankHostTest() override {
    if (hanging_ != nullptr) hanging_->Release();
    leave_.Set(absl::CancelledError("the test has ended"));
    abandon_.Set(absl::CancelledError("the test has ended"));
    if (ended_.valid()) ended_.wait();
    client_.reset();
  }

  // Two steps an epoch.
  void Start(uint32_t epochs = 1000000) {
    job_.set_name("test");
    job_.set_batch_size(8);
    job_.set_epochs(epochs);
    job_.mutable_consistency()->set_mode(SYNC);
    job_.set_partitions(4);
    job_.mutable_data()->set_format(LIBSVM);
    job_.mutable_data()->add_train(WriteFile("train", 16));
    job_.mutable_model()->mutable_logistic_regression();
    job_.mutable_optimizer()->mutable_sgd()->set_learning_rate(kLearningRate);
    train_ = Dataset::Load(job_.data(), job_.data().train(0)).value();
    Sampler::Options sampling;
    sampling.samples = train_->size();
    sampling.batch_size = job_.batch_size();
    sampling.logical_workers = kRanks;
    if (hangs_) hanging_ = std::make_unique<HangingData>(*train_);
    sampler_.emplace(Sampler::Create(sampling).value());
    plan_.emplace(job_, sampler_->epochs());

    ClientOptions options;
    options.role = WORKER_ROLE;
    options.follows_assignment = true;
    client_ = Client::Connect(std::move(options), cluster_.transport(), scheduler_).value();
    const auto make_model = [this] {
      return TrainingModel::Create(job_, train_->shape(), device_);
    };
    const std::unique_ptr<TrainingModel> model = make_model().value();
    for (const TableSpec& spec : model->tables())
      tables_.push_back(client_->CreateTable(spec).get().value());
    const TrainingData& data = hangs_ ? static_cast<const TrainingData&>(*hanging_) : *train_;
    const RankShared shared{.job = job_,
                            .logical_workers = kRanks,
                            .sampler = *sampler_,
                            .plan = *plan_,
                            .train = data,
                            .tables = tables_,
                            .rendezvous = rendezvous_,
                            .progress = progress_,
                            .step_delay = std::chrono::milliseconds(1)};
    host_ = std::make_unique<RankHost>(*client_, RankHost::Options{.shared = shared,
                                                                   .interrupts = {leave_, abandon_},
                                                                   .make_model = make_model,
                                                                   .call_timeout = call_timeout_});
    ended_ = std::async(std::launch::async, [this] { return host_->Run(); });
  }

  // The result of Run, or nothing if it does not return.
  std::optional<absl::Status> End() {
    if (ended_.wait_for(kTestPatience) != std::future_status::ready) return std::nullopt;
    return ended_.get();
  }
  uint64_t StepsOf(uint32_t rank) const {
    const WorkerProgress progress = progress_.progress();
    for (const RankProgress& each : progress.ranks()) {
      if (each.rank() == rank) return each.steps();
    }
    return 0;
  }
  // The rank makes progress.
  bool DoesSteps(uint32_t rank) {
    const uint64_t steps = StepsOf(rank);
    return Eventually([&] { return StepsOf(rank) >= steps + 3; });
  }
  // The requests of this kind for the rank that a server has accepted.
  std::vector<RequestHeader> Taken(Method method, uint32_t rank) const {
    std::vector<RequestHeader> headers;
    for (const FakeCluster::Event& event : cluster_.events()) {
      if (event.method == method && event.header.logical_worker() == rank)
        headers.push_back(event.header);
    }
    return headers;
  }

  FakeCluster cluster_{/*servers=*/2, /*partitions=*/4};
  const std::shared_ptr<AssigningScheduler> scheduler_ =
      std::make_shared<AssigningScheduler>(cluster_.control());
  std::atomic<bool> refuses_push_{false};
  std::atomic<bool> delays_take_over_{false};
  std::atomic<bool> refuses_take_over_{false};
  // Set before Start.
  MonotonicDuration call_timeout_ = std::chrono::minutes(10);
  bool hangs_ = false;
  Job job_;
  CpuDevice device_;
  std::unique_ptr<Dataset> train_;
  // With hangs_.
  std::unique_ptr<HangingData> hanging_;
  std::optional<Sampler> sampler_;
  std::optional<StepPlan> plan_;
  std::vector<Table> tables_;
  FakeRendezvous rendezvous_{kRanks, 0};
  ProgressBoard progress_{0, [](const WorkerProgress&) {}};
  Interrupt leave_;
  Interrupt abandon_;
  // Outlives the client.
  std::unique_ptr<RankHost> host_;
  std::unique_ptr<Client> client_;
  std::future<absl::Status> ended_;
};

TEST_F(RankHostTest, StandsByWithoutRanksUntilInterrupted) {
  Start();
  scheduler_->Assign({});
  ASSERT_TRUE(Eventually([&] { return scheduler_->IsAdopted(); }));
  EXPECT_TRUE(cluster_.events().empty());
  leave_.Set(absl::CancelledError("enough"));
  EXPECT_EQ(End(), absl::CancelledError("enough"));
}

TEST_F(RankHostTest, MovedRankIsReleasedAfterItsStepAndOthersContinue) {
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(DoesSteps(0));
  scheduler_->Assign({{1, 12}});
  ASSERT_TRUE(Eventually([&] { return !scheduler_->given_up().empty(); }));
  ASSERT_EQ(scheduler_->given_up().size(), 1u);
  EXPECT_EQ(scheduler_->given_up()[0].rank(), 0u);
  EXPECT_EQ(scheduler_->given_up()[0].incarnation(), 11u);
  EXPECT_EQ(Taken(Method::kPush, 0).back().step(), Taken(Method::kEndStep, 0).back().step());
  EXPECT_TRUE(DoesSteps(1));
  EXPECT_TRUE(leave_.reason().ok());
  EXPECT_TRUE(abandon_.reason().ok());
}

TEST_F(RankHostTest, ReadThatHangsDelaysOnlyItsRank) {
  hangs_ = true;
  Start();
  scheduler_->Assign({{0, 11}});
  ASSERT_TRUE(Eventually([&] { return hanging_->hangs(); }));
  scheduler_->Assign({});
  ASSERT_TRUE(Eventually([&] { return !scheduler_->given_up().empty(); }));
  scheduler_->Assign({{1, 12}});
  EXPECT_TRUE(DoesSteps(1));
}

TEST_F(RankHostTest, HostIsIdleOnceReadsHaveEnded) {
  hangs_ = true;
  Start();
  scheduler_->Assign({{0, 11}});
  ASSERT_TRUE(Eventually([&] { return hanging_->hangs(); }));
  leave_.Set(absl::CancelledError("enough"));
  EXPECT_EQ(End(), absl::CancelledError("enough"));
  EXPECT_FALSE(host_->IsIdle());
  hanging_->Release();
  EXPECT_TRUE(Eventually([&] { return host_->IsIdle(); }));
}

TEST_F(RankHostTest, ReturningRankContinuesInItsNewIncarnation) {
  Start();
  scheduler_->Assign({{0, 11}});
  ASSERT_TRUE(DoesSteps(0));
  scheduler_->Assign({});
  ASSERT_TRUE(Eventually([&] { return !scheduler_->given_up().empty(); }));
  const uint64_t steps = StepsOf(0);
  scheduler_->Assign({{0, 13}});
  ASSERT_TRUE(DoesSteps(0));
  const std::vector<RequestHeader> pushes = Taken(Method::kPush, 0);
  const auto first = std::find_if(pushes.begin(), pushes.end(),
                                  [](const RequestHeader& h) { return h.incarnation() == 13; });
  ASSERT_NE(first, pushes.end());
  EXPECT_EQ(first->step(), steps);
}

TEST_F(RankHostTest, StaleAssignmentDoesNotRestartAnEndedRank) {
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(DoesSteps(0));
  scheduler_->Assign({{1, 12}});
  ASSERT_TRUE(Eventually([&] { return !scheduler_->given_up().empty(); }));
  const size_t take_overs = Taken(Method::kTakeOver, 0).size();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(Eventually([&] { return scheduler_->IsAdopted(); }));
  ASSERT_TRUE(DoesSteps(1));
  EXPECT_EQ(Taken(Method::kTakeOver, 0).size(), take_overs);
}

TEST_F(RankHostTest, NewIncarnationOfARunningRankIsRefused) {
  Start();
  scheduler_->Assign({{0, 11}});
  ASSERT_TRUE(DoesSteps(0));
  scheduler_->Assign({{0, 13}});
  const std::optional<absl::Status> end = End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kInternal) << *end;
}

TEST_F(RankHostTest, FinishedRanksAreReportedToTheScheduler) {
  Start(/*epochs=*/2);
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(Eventually([&] { return scheduler_->finished().size() == kRanks; }));
  EXPECT_EQ(StepsOf(0), 4u);
  EXPECT_EQ(StepsOf(1), 4u);
  EXPECT_TRUE(scheduler_->given_up().empty());
  EXPECT_TRUE(leave_.reason().ok());
}

// The report waits for the slowest rank of the job (clip_global_norm), or the scheduler is away.
TEST_F(RankHostTest, LateReportOfFinishedRanksIsRepeated) {
  call_timeout_ = std::chrono::seconds(2);
  Start(/*epochs=*/2);
  std::vector<uint32_t> reported;
  for (const absl::Status& late :
       {absl::DeadlineExceededError("too late"), absl::UnavailableError("away")}) {
    scheduler_->DelayReports(1, late);
    const auto rank = static_cast<uint32_t>(reported.size() / 2);
    scheduler_->Assign({{rank, 11 + rank}});
    reported.insert(reported.end(), 2, rank);
    EXPECT_TRUE(Eventually([&] { return scheduler_->finished() == reported; }));
    EXPECT_TRUE(leave_.reason().ok()) << leave_.reason();
  }
}

TEST_F(RankHostTest, ReportOfReleasedRanksIsRepeatedWhileTheSchedulerIsAway) {
  call_timeout_ = std::chrono::seconds(2);
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(DoesSteps(0));
  scheduler_->DelayReports(1, absl::UnavailableError("away"));
  scheduler_->Assign({{1, 12}});
  EXPECT_TRUE(Eventually([&] { return scheduler_->given_up().size() == 2; }));
  EXPECT_TRUE(DoesSteps(1));
  EXPECT_TRUE(leave_.reason().ok()) << leave_.reason();
}

TEST_F(RankHostTest, RankWithoutAThreadEndsTheProcessInOrder) {
  Start();
  const NoMoreThreads none;
  scheduler_->Assign({{0, 11}});
  const std::optional<absl::Status> end = End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kUnavailable) << *end;
  EXPECT_FALSE(ShouldFailJob(*end, /*was_ready=*/true, /*job_has_started=*/true));
}

TEST_F(RankHostTest, RefusedPushEndsAllRanksWithTheRefusal) {
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(DoesSteps(0));
  ASSERT_TRUE(DoesSteps(1));
  refuses_push_ = true;
  const std::optional<absl::Status> end = End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kInvalidArgument) << *end;
  // The push, or the end of its step, which fails with it.
  EXPECT_TRUE(absl::StrContains(end->message(), " of logical worker ")) << *end;
  EXPECT_TRUE(absl::StrContains(end->message(), "refused")) << *end;
  EXPECT_TRUE(scheduler_->given_up().empty());
  EXPECT_EQ(leave_.reason(), *end);
  EXPECT_EQ(abandon_.reason(), *end);
}

TEST_F(RankHostTest, FailedTakeoverOfAMovedRankEndsAllRanks) {
  delays_take_over_ = true;
  refuses_take_over_ = true;
  Start();
  scheduler_->Assign({{0, 11}});
  ASSERT_TRUE(Eventually([&] { return scheduler_->IsAdopted(); }));
  scheduler_->Assign({});
  // The rank has moved by now, and its TakeOver is not answered yet.
  ASSERT_TRUE(Eventually([&] { return scheduler_->IsAdopted(); }));
  delays_take_over_ = false;
  const std::optional<absl::Status> end = End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kDataLoss) << *end;
  EXPECT_TRUE(scheduler_->given_up().empty());
}

TEST_F(RankHostTest, UnansweredTakeoverOfAMovedRankIsReleased) {
  delays_take_over_ = true;
  call_timeout_ = std::chrono::seconds(3);
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(Eventually([&] { return scheduler_->IsAdopted(); }));
  scheduler_->Assign({});
  ASSERT_TRUE(Eventually([&] { return scheduler_->given_up().size() == kRanks; }));
  delays_take_over_ = false;
  scheduler_->Assign({{0, 13}});
  EXPECT_TRUE(DoesSteps(0));
  EXPECT_TRUE(leave_.reason().ok());
  EXPECT_TRUE(abandon_.reason().ok());
}

TEST_F(RankHostTest, FailedRankEndsAllWithoutAnAnswerFromTheScheduler) {
  Start();
  scheduler_->Assign({{0, 11}, {1, 12}});
  ASSERT_TRUE(DoesSteps(1));
  scheduler_->StopAnswering();
  scheduler_->Assign({{1, 12}});
  ASSERT_TRUE(Eventually([&] { return !scheduler_->given_up().empty(); }));
  refuses_push_ = true;
  const std::optional<absl::Status> end = End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kInvalidArgument) << *end;
}

}  // namespace
}  // namespace pawl
