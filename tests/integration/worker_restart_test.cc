// Workers die, leave or hang during a job; the next host of their ranks continues where they
// stopped.
#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "nlohmann/json.hpp"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/harness/runfile.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{100};
constexpr std::chrono::seconds kStepTimeout{30};
constexpr uint64_t kTrainSamples = 2000;
constexpr uint64_t kStepsPerEpoch = 20;
constexpr uint64_t kEpochs = 4;
constexpr uint64_t kSteps = kEpochs * kStepsPerEpoch;
constexpr uint64_t kEvaluationInterval = 5;

bool HasDone(const GetStatusResponse& status, uint64_t steps) {
  return status.steps() >= steps || status.state() == COMPLETED || status.state() == FAILED;
}

class WorkerRestartTest : public TrainingTest {
 protected:
  void SetUp() override {
    WriteData({.samples = kTrainSamples, .fields = 5, .categories = 60}, 300);
  }

  std::string JobText(const std::string& consistency, uint64_t epochs = kEpochs,
                      uint64_t evaluation_interval = kEvaluationInterval) const {
    return absl::StrCat(
        "name: 'restart' seed: 7 data { train: '", train_, "' eval: '", eval_,
        "' format: LIBSVM }\n",
        "model { fm { dim: 4 } } optimizer { adagrad { learning_rate: 0.1 } }\n", "consistency { ",
        consistency, " } batch_size: 100 partitions: 16 logical_workers: 4\n", "epochs: ", epochs,
        " evaluation { every_steps: ", evaluation_interval, " }\n");
  }

  std::string ReferenceDigestOf(const std::string& text, uint64_t steps = kSteps) const {
    const auto result = TrainReference(text);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return "";
    EXPECT_EQ(result->steps, steps);
    return absl::StrFormat("%08x", result->digest);
  }

  // Starts two workers that keep their identity, slow enough for `kSteps` to take a while.
  ProcessCluster* StartWorkers(const std::string& job, int step_delay_ms = 20) {
    ProcessClusterOptions options;
    options.job = job;
    options.servers = 2;
    options.workers = 2;
    options.fixed_ports = true;
    options.lease = std::chrono::milliseconds(2500);
    for (const char* worker : {"worker-0", "worker-1"}) {
      const auto folder = MakeOutputFolder(worker);
      EXPECT_TRUE(folder.ok()) << folder.status();
      options.flags[worker] = {absl::StrCat("--step_delay_ms=", step_delay_ms),
                               absl::StrCat("--data_dir=", folder.value_or(""))};
    }
    return StartCluster(options);
  }

  void WaitForSteps(ProcessCluster& cluster, uint64_t steps) {
    const auto status =
        cluster.WaitFor([&](const auto& now) { return HasDone(now, steps); }, kStepTimeout);
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), RUNNING) << "the job ended before the test disturbed it";
  }

  void ExpectCompleted(ProcessCluster& cluster, const std::string& digest) {
    const nlohmann::json metrics = CompletedMetrics(cluster, kJobTimeout);
    EXPECT_EQ(metrics.value("steps", uint64_t{0}), kSteps);
    if (!digest.empty()) {
      EXPECT_EQ(metrics.value("digest", "none"), digest);
    }
    // Each evaluation once, however often it was reported.
    EXPECT_EQ(EvaluatedSteps(metrics), Multiples(kEvaluationInterval, kSteps));
    for (const auto& evaluation : metrics.value("evaluations", nlohmann::json::array()))
      EXPECT_EQ(evaluation["samples"], 300);
  }
};

// Kills both workers in turn, at steps before, at and after evaluations.
TEST_F(WorkerRestartTest, KilledWorkersOfASyncJobLeaveTheSameBits) {
  const std::string job = JobText("mode: SYNC");
  ProcessCluster* const cluster = StartWorkers(job);
  ASSERT_NE(cluster, nullptr);
  uint64_t steps = 3;
  for (int i = 0; i < 6; ++i, steps += 11) {
    SCOPED_TRACE(absl::StrCat("death ", i));
    WaitForSteps(*cluster, steps);
    const std::string victim = absl::StrCat("worker-", i % 2);
    ASSERT_TRUE(cluster->Kill(victim).ok());
    ASSERT_TRUE(cluster->Restart(victim).ok());
    const auto name = cluster->WaitUntilMember(victim, kStepTimeout);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(*name, victim);
  }
  ExpectCompleted(*cluster, ReferenceDigestOf(job));
}

TEST_F(WorkerRestartTest, KilledWorkersDoNotEndJobsOfOtherModes) {
  for (const char* mode : {"mode: BOUNDED staleness: 2", "mode: ASYNC"}) {
    SCOPED_TRACE(mode);
    ProcessCluster* const cluster = StartWorkers(JobText(mode));
    ASSERT_NE(cluster, nullptr);
    uint64_t steps = 3;
    for (int i = 0; i < 4; ++i, steps += 11) {
      WaitForSteps(*cluster, steps);
      const std::string victim = absl::StrCat("worker-", i % 2);
      ASSERT_TRUE(cluster->Kill(victim).ok());
      ASSERT_TRUE(cluster->Restart(victim).ok());
    }
    ExpectCompleted(*cluster, "");
  }
}

TEST_F(WorkerRestartTest, LeavingWorkerHandsItsRanksToTheNext) {
  const std::string job = JobText("mode: SYNC");
  ProcessCluster* const cluster = StartWorkers(job);
  ASSERT_NE(cluster, nullptr);
  WaitForSteps(*cluster, 7);
  cluster->node("worker-1").Signal(SIGTERM);
  ASSERT_TRUE(cluster->node("worker-1").WaitUntil(Clock::Real().Now() + std::chrono::seconds(5)));
  EXPECT_TRUE(cluster->node("worker-1").Succeeded()) << cluster->node("worker-1").HowItEnded();
  const auto left = cluster->GetStatus();
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->state(), RUNNING);
  const absl::Status added = cluster->AddWorker();
  ASSERT_TRUE(added.ok()) << added;
  ExpectCompleted(*cluster, ReferenceDigestOf(job));
  // The step was left complete or not started, so its next host has nothing to complete.
  EXPECT_EQ(cluster->Log("worker-2").find("ending it in the others"), std::string::npos)
      << cluster->Log("worker-2");
}

TEST_F(WorkerRestartTest, HungWorkerIsReplacedAndExitsOnWaking) {
  const std::string job = JobText("mode: SYNC");
  ProcessCluster* const cluster = StartWorkers(job);
  ASSERT_NE(cluster, nullptr);
  WaitForSteps(*cluster, 7);
  cluster->Pause("worker-0");
  const auto gone = cluster->WaitFor(
      [](const GetStatusResponse& status) {
        return std::any_of(
            status.nodes().begin(), status.nodes().end(),
            [](const NodeStatus& node) { return node.node() == "worker-0" && node.gone(); });
      },
      kStepTimeout);
  ASSERT_TRUE(gone.ok()) << gone.status();
  const absl::Status added = cluster->AddWorker({"--step_delay_ms=20"});
  ASSERT_TRUE(added.ok()) << added;
  WaitForSteps(*cluster, gone->steps() + 3);
  cluster->Continue("worker-0");
  ASSERT_TRUE(cluster->node("worker-0").WaitUntil(Clock::Real().Now() + std::chrono::seconds(10)));
  EXPECT_EQ(cluster->node("worker-0").HowItEnded(), "exited with code 1");
  ExpectCompleted(*cluster, ReferenceDigestOf(job));
}

// Evaluations and a returning worker wait for the scheduler; steps do not.
TEST_F(WorkerRestartTest, AbsentSchedulerDoesNotChangeTheResult) {
  const std::string job = JobText("mode: SYNC");
  // Slow, because this process also takes a while to reach the scheduler again.
  ProcessCluster* const cluster = StartWorkers(job, /*step_delay_ms=*/80);
  ASSERT_NE(cluster, nullptr);
  for (const uint64_t steps : {3, 13}) {
    SCOPED_TRACE(steps);
    WaitForSteps(*cluster, steps);
    ASSERT_TRUE(cluster->Kill("scheduler").ok());
    ASSERT_TRUE(cluster->Kill("worker-1").ok());
    ASSERT_TRUE(cluster->Restart("worker-1").ok());
    // Longer than its lease.
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ASSERT_FALSE(cluster->node("worker-0").HasEnded()) << cluster->Describe();
    ASSERT_FALSE(cluster->node("worker-1").HasEnded()) << cluster->Describe();
    ASSERT_TRUE(cluster->Restart("scheduler").ok());
  }
  ExpectCompleted(*cluster, ReferenceDigestOf(job));
  EXPECT_NE(cluster->Log("worker-1").find("as worker-1"), std::string::npos)
      << cluster->Log("worker-1");
}

// `pawlctl run` as the supervisor.
class SupervisedTest : public WorkerRestartTest {
 protected:
  void Start(const std::string& job) {
    const auto folder = MakeOutputFolder("supervised");
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_ = *folder;
    const std::string job_file = folder_ + "/the_job.pbtxt";
    std::ofstream(job_file) << job;
    const auto program = Runfile("deploy/pawlctl/pawlctl");
    ASSERT_TRUE(program.ok()) << program.status();
    auto run = ChildProcess::Start(
        {"pawlctl",
         *program,
         {"run", "--job=" + job_file, "--servers=2", "--workers=2", "--out=" + folder_ + "/out"},
         folder_ + "/pawlctl.log"});
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
  }

  void TearDown() override {
    if (HasFailure() && run_ != nullptr) std::printf("%s\n", Log().c_str());
    WorkerRestartTest::TearDown();
  }

  std::string Log() const {
    std::string text;
    for (const std::string& line : run_->LogTail(100)) absl::StrAppend(&text, line, "\n");
    return text;
  }

  // Returns the first status with this many steps; none if the run ends first.
  std::optional<GetStatusResponse> WaitForSteps(uint64_t steps) {
    std::optional<GetStatusResponse> reached;
    const auto look = [&] {
      if (stub_ == nullptr) {
        std::ifstream file(folder_ + "/out/scheduler.addr");
        std::string address;
        if (std::getline(file, address)) {
          stub_ = Scheduler::NewStub(grpc::CreateCustomChannel(
              address, grpc::InsecureChannelCredentials(), ChannelSettings(ChannelKind::kControl)));
        }
      } else {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
        GetStatusResponse status;
        if (stub_->GetStatus(&context, GetStatusRequest(), &status).ok() && HasDone(status, steps))
          reached = status;
      }
      return reached.has_value() || run_->HasEnded();
    };
    Eventually(look, kStepTimeout);
    return reached;
  }

  static pid_t PidOf(const GetStatusResponse& status, const std::string& name) {
    for (const NodeStatus& node : status.nodes()) {
      if (node.node() != name) continue;
      pid_t pid = 0;
      if (absl::SimpleAtoi(node.description().substr(node.description().rfind(':') + 1), &pid))
        return pid;
    }
    return 0;
  }

  std::unique_ptr<ChildProcess> run_;
  std::unique_ptr<Scheduler::Stub> stub_;
};

TEST_F(SupervisedTest, RestartedWorkerOfASyncJobLeavesTheSameBits) {
  // Long enough for a kill in the middle.
  constexpr uint64_t kManyEpochs = 80;
  constexpr uint64_t kManySteps = kManyEpochs * kStepsPerEpoch;
  const std::string job = JobText("mode: SYNC", kManyEpochs, kManySteps / 4);
  ASSERT_NO_FATAL_FAILURE(Start(job));
  for (const auto& [steps, name] :
       std::vector<std::pair<uint64_t, std::string>>{{50, "worker-0"}, {200, "worker-1"}}) {
    SCOPED_TRACE(name);
    const auto status = WaitForSteps(steps);
    ASSERT_TRUE(status.has_value());
    ASSERT_EQ(status->state(), RUNNING);
    const pid_t pid = PidOf(*status, name);
    ASSERT_GT(pid, 0);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
  }
  ASSERT_TRUE(run_->WaitUntil(Clock::Real().Now() + kJobTimeout));
  ASSERT_TRUE(run_->Succeeded()) << run_->HowItEnded();
  std::ifstream file(folder_ + "/out/metrics.json");
  const nlohmann::json metrics = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(metrics.is_object());
  EXPECT_EQ(metrics["steps"], kManySteps);
  EXPECT_EQ(
      metrics["restarts"],
      (nlohmann::json{
          {"scheduler", 0}, {"server-0", 0}, {"server-1", 0}, {"worker-0", 1}, {"worker-1", 1}}));
  EXPECT_EQ(metrics["digest"], ReferenceDigestOf(job, kManySteps));
}

TEST_F(SupervisedTest, LeavingWorkerHandsItsRanksToTheOther) {
  constexpr uint64_t kManyEpochs = 60;
  constexpr uint64_t kManySteps = kManyEpochs * kStepsPerEpoch;
  const std::string job = JobText("mode: SYNC", kManyEpochs, kManySteps / 4);
  ASSERT_NO_FATAL_FAILURE(Start(job));
  const auto status = WaitForSteps(50);
  ASSERT_TRUE(status.has_value());
  const pid_t pid = PidOf(*status, "worker-1");
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  ASSERT_TRUE(run_->WaitUntil(Clock::Real().Now() + kJobTimeout));
  ASSERT_TRUE(run_->Succeeded()) << run_->HowItEnded();
  std::ifstream file(folder_ + "/out/metrics.json");
  const nlohmann::json metrics = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(metrics.is_object());
  EXPECT_EQ(metrics["restarts"]["worker-1"], 0);
  EXPECT_EQ(metrics["samples"], kManyEpochs * kTrainSamples);
  EXPECT_EQ(metrics["digest"], ReferenceDigestOf(job, kManySteps));
}

}  // namespace
}  // namespace pawl
