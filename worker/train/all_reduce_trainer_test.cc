// Tests RankTrainer, DenseReplica and DenseStore together: ranks whose dense part is trained by
// collectives.
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/collective/testing/fake_group.h"
#include "worker/dense/dense_memory.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_source.h"
#include "worker/dense/dense_store.h"
#include "worker/train/rank_trainer.h"
#include "worker/train/testing/trainer_device.h"
#include "worker/train/testing/trainer_fakes.h"

namespace pawl {
namespace {

constexpr uint32_t kRanks = 4;

struct Setting {
  bool all_reduce = true;
  ConsistencyMode mode = SYNC;
  // The ranks of each process.
  std::vector<std::vector<uint32_t>> processes = {{0, 1, 2, 3}};
  uint32_t batch_size = 8;
  int train_samples = 40;
  int eval_samples = 0;
  uint64_t write_back_steps = 4;
  uint32_t micro_batches = 1;
  uint64_t bucket_bytes = 64;
  // Adam instead of SGD, which has no slots.
  bool adam = false;
  bool sharded = false;
  ElementType gradients = FLOAT32;
  ElementType compute = FLOAT32;
  float loss_scale = 0;
  // Keeps the dense parameters in the host's memory though the device has its own.
  bool on_host = false;
  // The collectives accept the device's memory, if it has its own.
  bool on_device = false;
};

// All processes of a job. Tests access its public members.
class Cluster {
 public:
  explicit Cluster(const Setting& setting) : setting_(setting) {
    job_.set_name("test");
    job_.set_seed(7);
    job_.set_partitions(4);
    job_.set_batch_size(setting.batch_size);
    job_.set_epochs(2);
    job_.set_logical_workers(kRanks);
    job_.set_micro_batches(setting.micro_batches);
    job_.mutable_precision()->set_gradients(setting.gradients);
    job_.mutable_precision()->set_compute(setting.compute);
    job_.mutable_precision()->set_loss_scale(setting.loss_scale);
    job_.mutable_consistency()->set_mode(setting.mode);
    job_.mutable_data()->set_format(LIBSVM);
    job_.mutable_data()->set_libsvm_fields(2);
    job_.mutable_data()->add_train(WriteFile("train", setting.train_samples));
    job_.mutable_model()->mutable_deepfm()->set_dim(3);
    job_.mutable_model()->mutable_deepfm()->add_hidden(5);
    if (setting.adam) {
      job_.mutable_optimizer()->mutable_adam()->set_learning_rate(kLearningRate);
    } else {
      job_.mutable_optimizer()->mutable_sgd()->set_learning_rate(kLearningRate);
    }
    if (setting.all_reduce) {
      job_.set_dense_path(ALLREDUCE);
      job_.mutable_all_reduce()->set_write_back_steps(setting.write_back_steps);
      job_.mutable_all_reduce()->set_sharded_optimizer(setting.sharded);
    }
    train_ = Dataset::Load(job_.data(), job_.data().train(0)).value();
    if (setting.eval_samples > 0) {
      job_.mutable_data()->add_eval(WriteFile("eval", setting.eval_samples));
      eval_ = Dataset::Load(job_.data(), job_.data().eval(0)).value();
    }
    Sampler::Options sampling;
    sampling.samples = train_->size();
    sampling.batch_size = job_.batch_size();
    sampling.logical_workers = kRanks;
    sampling.seed = job_.seed();
    sampler_.emplace(Sampler::Create(sampling).value());
    plan_.emplace(job_, sampler_->epochs());
    servers_ = std::make_unique<FakeServers>(setting.mode, std::vector<uint64_t>(kRanks));
    servers_->SetInitial([](const std::string& table, uint64_t key, size_t i) {
      if (absl::EndsWith(table, "/slots") || table == "dense/steps") return 0.0f;
      return static_cast<float>(static_cast<int>((table.size() + key * 5 + i * 3) % 7) - 3) / 8;
    });
    rendezvous_ = std::make_unique<FakeRendezvous>(kRanks, 0);
    progress_ = std::make_unique<ProgressBoard>(plan_->total_steps(), [](const WorkerProgress&) {});
#ifdef PAWL_TEST_REMOTE_MEMORY
    if (setting.on_device) {
      groups_.SetDeviceMemory([this](void* address, size_t bytes) {
        return static_cast<RemoteMemoryDevice&>(*device_).Real(static_cast<char*>(address), bytes);
      });
    }
#endif
    CreateTables();
    for (size_t i = 0; i < setting.processes.size(); ++i)
      Start(absl::StrCat("p", i), setting.processes[i]);
  }
  ~Cluster() {
    trainers_.clear();
    processes_.clear();
  }

  void RunAllOk() {
    std::vector<std::thread> threads;
    for (auto& [rank, trainer] : trainers_) {
      threads.emplace_back([trainer = trainer.get()] {
        const absl::Status status = trainer->Run();
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  int CountInLog(uint32_t rank, const std::string& what) {
    int count = 0;
    for (const std::string& entry : servers_->LogOf(rank)) count += entry == what;
    return count;
  }

  const DenseReplica& replica(size_t process) const { return *processes_[process]->replica; }

  const Setting setting_;
  std::unique_ptr<Device> device_ = TrainerDevice();
  Job job_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> eval_;
  std::optional<Sampler> sampler_;
  std::optional<StepPlan> plan_;
  std::vector<Table> tables_;
  // The tables of DenseStore::Specs.
  std::vector<Table> dense_tables_;
  std::unique_ptr<FakeServers> servers_;
  std::unique_ptr<FakeRendezvous> rendezvous_;
  std::unique_ptr<ProgressBoard> progress_;
  FakeGroups groups_{kRanks};
  Interrupt leave_;
  Interrupt abandon_;

 private:
  struct Process {
    std::unique_ptr<GroupFormer> former;
    std::unique_ptr<DenseStore> store;
    std::unique_ptr<FakeLogicalWorker> reader;
    std::unique_ptr<DenseSnapshots> snapshots;
    std::unique_ptr<DenseReplica> replica;
  };

  bool StaysOnDevice() const { return !setting_.on_host && DenseStaysOnDevice(job_, *device_); }

  void CreateTables() {
    const auto model = TrainingModel::Create(job_, train_->shape(), *device_).value();
    std::vector<TableSpec> dense;
    for (const TableSpec& spec : model->tables()) {
      if (spec.kind() == DENSE) dense.push_back(spec);
    }
    const auto rule = UpdateRule::Create(job_.optimizer()).value();
    uint32_t id = 0;
    if (setting_.all_reduce) {
      for (TableSpec spec : DenseStore::Specs(dense, *rule)) {
        spec.set_id(++id);
        dense_tables_.emplace_back(spec);
      }
    }
    size_t next = 0;
    for (TableSpec spec : model->tables()) {
      if (setting_.all_reduce && spec.kind() == DENSE) {
        tables_.push_back(dense_tables_[next++]);
      } else {
        spec.set_id(++id);
        tables_.emplace_back(spec);
      }
    }
  }

  void Start(const std::string& name, const std::vector<uint32_t>& ranks) {
    Process& process = *processes_.emplace_back(std::make_unique<Process>());
    std::vector<Table> dense;
    for (const Table& table : tables_) {
      if (table.dense()) dense.push_back(table);
    }
    process.snapshots = std::make_unique<DenseSnapshots>(dense);
    if (setting_.all_reduce) {
      process.former = groups_.Join(name);
      process.reader = std::make_unique<FakeLogicalWorker>(*servers_, ranks[0], 0);
      DenseReplica::Options options;
      options.logical_workers = kRanks;
      options.optimizer = job_.optimizer();
      options.bucket_bytes = setting_.bucket_bytes;
      options.sharded = setting_.sharded;
      if (StaysOnDevice()) options.device = device_.get();
      options.is_write_back = [this](uint64_t steps) { return plan_->IsWriteBack(steps); };
      for (const Table& table : dense) options.elements.push_back(table.elements());
      options.load = [&process](const Interrupt& interrupt, DenseState& state) {
        return process.store->Load(*process.reader, std::chrono::minutes(1), interrupt, state);
      };
      process.replica = DenseReplica::Create(std::move(options), *process.former).value();
      process.store = std::make_unique<DenseStore>(process.replica->layout(),
                                                   process.replica->rule(), dense_tables_);
    }
    DenseSource* source = process.snapshots.get();
    if (process.replica != nullptr) source = process.replica.get();
    const RankShared shared{.job = job_,
                            .logical_workers = kRanks,
                            .sampler = *sampler_,
                            .plan = *plan_,
                            .train = *train_,
                            .eval = eval_.get(),
                            .eval_in_memory = eval_.get(),
                            .tables = tables_,
                            .dense = source,
                            .evaluation_dense = process.snapshots.get(),
                            .replica = process.replica.get(),
                            .store = process.store.get(),
                            .rendezvous = *rendezvous_,
                            .progress = *progress_};
    for (const uint32_t rank : ranks) {
      sessions_.push_back(std::make_unique<FakeLogicalWorker>(*servers_, rank, 0));
      progress_->AddRank(rank, 0, 0);
      trainers_[rank] = std::make_unique<RankTrainer>(
          shared, Interrupts{leave_, abandon_}, *sessions_.back(),
          TrainingModel::Create(job_, train_->shape(), *device_, false, StaysOnDevice()).value());
      if (process.replica != nullptr) process.replica->Expect(rank, 1);
    }
    for (const uint32_t rank : ranks) {
      EXPECT_TRUE(process.replica == nullptr || process.replica->Begin(rank, 0).ok());
    }
  }

  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<FakeLogicalWorker>> sessions_;
  std::map<uint32_t, std::unique_ptr<RankTrainer>> trainers_;
};

using Parameters = std::map<std::pair<std::string, uint64_t>, std::vector<float>>;

void ExpectNear(const Parameters& actual, const Parameters& expected, double bound = 1e-5) {
  for (const auto& [key, row] : expected) {
    const auto found = actual.find(key);
    ASSERT_TRUE(found != actual.end()) << key.first;
    ASSERT_EQ(found->second.size(), row.size()) << key.first;
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(found->second[i], row[i], bound) << key.first << " " << i;
  }
}

TEST(AllReduceTrainerTest, MatchesTrainingOnTheServers) {
  Cluster servers({.all_reduce = false});
  servers.RunAllOk();
  for (const auto& processes : std::vector<std::vector<std::vector<uint32_t>>>{
           {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0}, {1, 2}, {3}}}) {
    Cluster cluster({.processes = processes});
    cluster.RunAllOk();
    ExpectNear(cluster.servers_->parameters(), servers.servers_->parameters());
  }
}

TEST(AllReduceTrainerTest, TwoRunsGiveTheSameBits) {
  std::optional<Parameters> first;
  for (int run = 0; run < 3; ++run) {
    Cluster cluster({.processes = {{0, 1}, {2, 3}}});
    cluster.RunAllOk();
    if (first.has_value()) {
      EXPECT_EQ(cluster.servers_->parameters(), *first);
    }
    first = cluster.servers_->parameters();
  }
}

TEST(AllReduceTrainerTest, ShardingChangesNoParameterAndNoSlot) {
  for (const auto& processes : std::vector<std::vector<std::vector<uint32_t>>>{
           {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0}, {1, 2}, {3}}}) {
    Cluster whole({.processes = processes, .write_back_steps = 3, .adam = true});
    whole.RunAllOk();
    Cluster sharded({.processes = processes, .write_back_steps = 3, .adam = true, .sharded = true});
    sharded.RunAllOk();
    EXPECT_EQ(sharded.servers_->parameters(), whole.servers_->parameters());
  }
}

TEST(AllReduceTrainerTest, MemoryOfTheDenseParametersChangesNoBit) {
  for (const auto& processes : std::vector<std::vector<std::vector<uint32_t>>>{
           {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0}, {1, 2}, {3}}}) {
    for (const ElementType compute : {FLOAT32, FLOAT16}) {
      const Setting setting = {.processes = processes,
                               .write_back_steps = 3,
                               .adam = true,
                               .compute = compute,
                               .loss_scale = 16777216.0f};
      Setting on_host = setting, on_device = setting;
      on_host.on_host = true;
      on_device.on_device = true;
      Cluster first(on_host);
      first.RunAllOk();
      for (const Setting& other : {setting, on_device}) {
        Cluster cluster(other);
        cluster.RunAllOk();
        EXPECT_EQ(cluster.servers_->parameters(), first.servers_->parameters())
            << processes.size() << other.on_device;
        EXPECT_EQ(cluster.replica(0).is_in_host_memory(), cluster.device_->SharesHostMemory());
      }
    }
  }
}

TEST(AllReduceTrainerTest, WriteBackPrecedesTheEndOfTheStep) {
  // 10 steps; written back after 4, 8 and 10.
  Cluster cluster({.processes = {{0, 1}, {2, 3}}});
  cluster.RunAllOk();
  ASSERT_EQ(cluster.plan_->total_steps(), 10u);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint64_t step = 0; step < 10; ++step) {
      const bool written = step == 3 || step == 7 || step == 9;
      // Six tensors, including the step counts.
      EXPECT_EQ(cluster.CountInLog(rank, absl::StrCat("push ", step)), written ? 2 : 1)
          << rank << " " << step;
    }
  }
  const Parameters parameters = cluster.servers_->parameters();
  EXPECT_EQ(parameters.at({"dense/steps", 0}), (std::vector<float>{0, 10, 0, 10}));
}

TEST(AllReduceTrainerTest, WriteBackIsNotRounded) {
  Cluster cluster({.gradients = BFLOAT16});
  cluster.RunAllOk();
  for (const auto& [table, types] : cluster.servers_->element_types()) {
    const bool is_sparse = table == "linear" || table == "embedding";
    EXPECT_EQ(types, std::set<ElementType>{is_sparse ? BFLOAT16 : FLOAT32}) << table;
  }
  EXPECT_EQ(cluster.servers_->element_types().count("mlp/0/weight"), 1u);
}

TEST(AllReduceTrainerTest, EvaluationsSeeTheDenseParametersOfTheirStep) {
  Cluster servers({.all_reduce = false, .eval_samples = 20});
  servers.RunAllOk();
  Cluster cluster({.processes = {{0, 1}, {2, 3}}, .eval_samples = 20, .write_back_steps = 100});
  cluster.RunAllOk();
  std::map<std::pair<uint64_t, uint32_t>, double> expected;
  for (const auto& report : servers.rendezvous_->reports()) {
    expected[{report.evaluation(), report.rank()}] = report.logloss_sum();
  }
  ASSERT_EQ(expected.size(), 8u);
  for (const auto& report : cluster.rendezvous_->reports()) {
    EXPECT_NEAR(report.logloss_sum(), expected.at({report.evaluation(), report.rank()}), 1e-4);
  }
}

TEST(AllReduceTrainerTest, MicroBatchesTakeTheSameSteps) {
  Cluster whole({.processes = {{0, 1}, {2, 3}}});
  whole.RunAllOk();
  Cluster parts({.processes = {{0, 1}, {2, 3}}, .micro_batches = 2});
  parts.RunAllOk();
  ExpectNear(parts.servers_->parameters(), whole.servers_->parameters());
}

// Gradients go to the collective once, when their scale is known; each part of a batch is divided
// by its own.
TEST(AllReduceTrainerTest, LossScalingWorksForWholeBatchesAndParts) {
  Cluster exact({.processes = {{0, 1}, {2, 3}}});
  exact.RunAllOk();
  for (const uint32_t micro_batches : {1, 2}) {
    std::optional<Parameters> first;
    // The larger scale is too large for every step.
    for (const float loss_scale : {1024.0f, 16777216.0f, 16777216.0f}) {
      Cluster cluster({.processes = {{0, 1}, {2, 3}},
                       .micro_batches = micro_batches,
                       .compute = FLOAT16,
                       .loss_scale = loss_scale});
      cluster.RunAllOk();
      const Parameters parameters = cluster.servers_->parameters();
      ExpectNear(parameters, exact.servers_->parameters(), 2e-3);
      EXPECT_NE(parameters, exact.servers_->parameters());
      if (loss_scale != 1024.0f && first.has_value()) {
        EXPECT_EQ(parameters, *first);
      }
      if (loss_scale != 1024.0f) first = parameters;
    }
  }
}

TEST(AllReduceTrainerTest, RankWithoutSamplesTakesPart) {
  // The last step of an epoch has 2 samples for 4 ranks.
  Cluster servers({.all_reduce = false, .train_samples = 18});
  servers.RunAllOk();
  Cluster cluster({.processes = {{0, 1}, {2, 3}}, .train_samples = 18});
  cluster.RunAllOk();
  ExpectNear(cluster.servers_->parameters(), servers.servers_->parameters());
}

TEST(AllReduceTrainerTest, NoRankLeavesBeforeAllHaveEndedTheirSteps) {
  for (const ConsistencyMode mode : {SYNC, ASYNC}) {
    Cluster cluster({.mode = mode, .processes = {{0, 1}, {2, 3}}});
    cluster.RunAllOk();
    EXPECT_TRUE(cluster.rendezvous_->barrier_names().contains("end of the dense training"));
    EXPECT_EQ(cluster.groups_.groups_formed(), 1u);
  }
}

TEST(AllReduceTrainerTest, RanksMeetAgainAfterADeath) {
  const std::string end = "end of the dense training";
  Cluster cluster({.processes = {{0, 1}, {2, 3}}});
  cluster.rendezvous_->BreakBarrier(end);
  cluster.rendezvous_->BreakBarrier(end + "-again-1");
  cluster.RunAllOk();
  EXPECT_EQ(cluster.rendezvous_->barrier_names(),
            (std::set<std::string>{end, end + "-again-1", end + "-again-2"}));
}

TEST(AllReduceTrainerTest, GradientsWaitForTheEndOfAWriteBack) {
  // A successor that starts at the step of the write-back must find the dense parameters as of its
  // end.
  Cluster cluster({.mode = ASYNC, .processes = {{0, 1}, {2, 3}}});
  int pushes = 0;
  std::atomic<bool> held = false;
  // When a rank pushes for the second time in step 3, all ranks have handed in its gradients.
  cluster.servers_->AtPush(0, 3, [&] {
    if (++pushes != 2) return;
    cluster.servers_->HoldEnds();
    held = true;
  });
  std::thread trains([&] { cluster.RunAllOk(); });
  while (!held) std::this_thread::yield();
  EXPECT_EQ(cluster.replica(0).AwaitSteps(5, std::chrono::milliseconds(500), Interrupt()).code(),
            absl::StatusCode::kDeadlineExceeded);
  cluster.servers_->ReleaseEnds();
  EXPECT_TRUE(cluster.replica(0).AwaitSteps(10, std::chrono::minutes(1), Interrupt()).ok());
  trains.join();
}

}  // namespace
}  // namespace pawl
