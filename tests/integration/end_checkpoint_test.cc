// The checkpoint at a job's end: in every mode, with deaths while it is written, and jobs restored
// from it.
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::seconds kJobTimeout{90};
// One epoch of 1000 samples in batches of 64.
constexpr uint64_t kSteps = 16;

class EndCheckpointTest : public TrainingTest {
 protected:
  struct Shape {
    uint32_t servers = 2;
    uint32_t workers = 2;
    std::string consistency = "mode: SYNC";
    std::string more = {};
    uint32_t replicas = 1;
    uint32_t epochs = 1;
    bool checkpoints = true;
    std::string restore = {};
  };

  void SetUp() override {
    WriteData({.samples = 1000}, 200);
    dir_ = folder_ + "/checkpoints";
  }

  ProcessClusterOptions Options(const Shape& shape) const {
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'ended' seed: 5 data { train: '", train_, "' eval: '", eval_, "' format: LIBSVM }\n",
        "model { deepfm { dim: 4 hidden: [8] } } optimizer { adam { learning_rate: 0.01 } }\n",
        "consistency { ", shape.consistency, " } batch_size: 64 epochs: ", shape.epochs,
        " logical_workers: 2 partitions: 8\n", shape.more, "\n",
        shape.checkpoints ? absl::StrCat("checkpoint { dir: '", dir_, "' }") : "");
    options.servers = shape.servers;
    options.workers = shape.workers;
    options.replicas = shape.replicas;
    options.fixed_ports = true;
    options.scheduler_program = "tests/chaos/pawl-scheduler-with-failpoints";
    options.server_program = "tests/chaos/pawl-server-with-failpoints";
    if (!shape.restore.empty()) options.flags["scheduler"].push_back("--restore=" + shape.restore);
    return options;
  }

  nlohmann::json End(ProcessCluster* cluster) {
    if (cluster == nullptr) return {};
    const absl::Status ended = cluster->WaitForSuccess(kJobTimeout);
    EXPECT_TRUE(ended.ok()) << ended;
    return MetricsOf(*cluster);
  }
  static nlohmann::json MetricsOf(ProcessCluster& cluster) {
    const auto metrics = cluster.Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    return metrics.ok() ? *metrics : nlohmann::json();
  }

  // The checkpoint is complete and the newest.
  void ExpectEndCheckpoint(const nlohmann::json& metrics, uint64_t steps) {
    const std::string name = CheckpointStore::NameOf("ended", steps, /*is_final=*/true);
    EXPECT_EQ(metrics.value("end_checkpoint", ""), absl::StrCat(dir_, "/", name)) << metrics;
    const CheckpointStore store(Env::Real(), dir_);
    const absl::Status whole = store.Verify(name);
    EXPECT_TRUE(whole.ok()) << whole;
    EXPECT_EQ(store.Newest("ended").value(), name);
  }

  std::string dir_;
};

// A job restored from it has nothing to train and the same parameters.
TEST_F(EndCheckpointTest, EndCheckpointEqualsTheResultInEveryMode) {
  const std::vector<std::pair<std::string, std::string>> modes = {
      {"mode: SYNC", ""},
      {"mode: BOUNDED staleness: 3", ""},
      {"mode: ASYNC", ""},
      {"mode: SYNC",
       "evaluation { every_steps: 3 early_stopping { metric: AUC patience: 1 min_delta: 0.4 } }"},
      {"mode: SYNC", "dense_path: ALLREDUCE all_reduce { write_back_steps: 7 }"},
      {"mode: ASYNC", "dense_path: ALLREDUCE all_reduce { write_back_steps: 7 }"},
  };
  for (const auto& [consistency, more] : modes) {
    SCOPED_TRACE(absl::StrCat(consistency, " ", more));
    dir_ += "x";
    const nlohmann::json metrics =
        End(StartCluster(Options({.consistency = consistency, .more = more})));
    const auto steps = metrics.value("steps", uint64_t{0});
    ExpectEndCheckpoint(metrics, steps);
    const nlohmann::json again = End(StartCluster(Options(
        {.servers = 3, .workers = 1, .consistency = consistency, .more = more, .restore = dir_})));
    EXPECT_EQ(again.value("digest", "none"), metrics.value("digest", "missing"));
    EXPECT_EQ(again.value("steps", uint64_t{0}), steps);
    ExpectEndCheckpoint(again, steps);
    EXPECT_EQ(again["eval"].value("logloss", 0.0), metrics["eval"].value("logloss", 1.0));
  }
}

TEST_F(EndCheckpointTest, LongerJobContinuesFromItBitIdentically) {
  const nlohmann::json expected = End(StartCluster(Options({.epochs = 3, .checkpoints = false})));
  EXPECT_FALSE(expected.contains("end_checkpoint"));
  ExpectEndCheckpoint(End(StartCluster(Options({.epochs = 1}))), kSteps);
  const nlohmann::json metrics =
      End(StartCluster(Options({.servers = 1, .workers = 1, .epochs = 3, .restore = dir_})));
  EXPECT_EQ(metrics.value("digest", "none"), expected.value("digest", "missing"));
  ExpectEndCheckpoint(metrics, 3 * kSteps);
}

// In the folder of the previous run; the job makes no checkpoint before its own end.
TEST_F(EndCheckpointTest, RestoredJobMakesItAfterASchedulerDeath) {
  const nlohmann::json expected = End(StartCluster(Options({.epochs = 2, .checkpoints = false})));
  for (const std::string failpoint :
       {"checkpoint.manifest=crash@1", "checkpoint.renamed=crash@1"}) {
    SCOPED_TRACE(failpoint);
    dir_ += "x";
    ExpectEndCheckpoint(End(StartCluster(Options({}))), kSteps);
    ProcessClusterOptions options = Options({.epochs = 2, .restore = dir_});
    options.environment["scheduler"] = {absl::StrCat("PAWL_FAILPOINTS=", failpoint)};
    ProcessCluster* const cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(cluster->node("scheduler").WaitUntil(Clock::Real().Now() + kPatience));
    ASSERT_TRUE(cluster->node("scheduler").KilledBy(SIGKILL))
        << cluster->node("scheduler").HowItEnded();
    ASSERT_TRUE(cluster->Restart("scheduler").ok());
    const nlohmann::json metrics = End(cluster);
    EXPECT_EQ(metrics.value("digest", "none"), expected.value("digest", "missing"));
    ExpectEndCheckpoint(metrics, 2 * kSteps);
  }
}

// server-1 writes 4 of the 8 parts. The job makes no other checkpoints.
TEST_F(EndCheckpointTest, BackupsReplaceAServerThatDiesMeanwhile) {
  const nlohmann::json expected = End(StartCluster(Options({.checkpoints = false})));
  ProcessClusterOptions options = Options({.replicas = 2});
  options.lease = std::chrono::seconds(3);
  options.environment["server-1"] = {"PAWL_FAILPOINTS=checkpoint.part=crash@2"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(cluster->node("server-1").WaitUntil(Clock::Real().Now() + kPatience));
  EXPECT_TRUE(cluster->node("server-1").KilledBy(SIGKILL))
      << cluster->node("server-1").HowItEnded();
  ASSERT_TRUE(cluster->WaitUntilAllEnded(kJobTimeout).ok());
  const nlohmann::json metrics = MetricsOf(*cluster);
  EXPECT_EQ(metrics.value("state", ""), "COMPLETED");
  EXPECT_EQ(metrics.value("digest", "none"), expected.value("digest", "missing"));
  ExpectEndCheckpoint(metrics, kSteps);
}

TEST_F(EndCheckpointTest, RestartedProcessesMakeIt) {
  const nlohmann::json expected = End(StartCluster(Options({.checkpoints = false})));
  for (const auto& [victim, failpoint] : {std::pair("server-1", "checkpoint.part=crash@2"),
                                          {"scheduler", "checkpoint.manifest=crash@1"},
                                          {"scheduler", "checkpoint.renamed=crash@1"}}) {
    SCOPED_TRACE(failpoint);
    dir_ += "x";
    ProcessClusterOptions options = Options({});
    options.environment[victim] = {absl::StrCat("PAWL_FAILPOINTS=", failpoint)};
    ProcessCluster* const cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(cluster->node(victim).WaitUntil(Clock::Real().Now() + kPatience));
    ASSERT_TRUE(cluster->node(victim).KilledBy(SIGKILL)) << cluster->node(victim).HowItEnded();
    ASSERT_TRUE(cluster->Restart(victim).ok());
    const nlohmann::json metrics = End(cluster);
    EXPECT_EQ(metrics.value("digest", "none"), expected.value("digest", "missing"));
    ExpectEndCheckpoint(metrics, kSteps);
  }
}

TEST_F(EndCheckpointTest, JobCompletesAndReportsAFailedWrite) {
  dir_ += "/not/there";
  const nlohmann::json metrics = End(StartCluster(Options({})));
  EXPECT_EQ(metrics.value("state", ""), "COMPLETED");
  EXPECT_TRUE(metrics["digest"].is_string());
  EXPECT_FALSE(metrics.contains("end_checkpoint"));
  EXPECT_TRUE(absl::StrContains(metrics.value("end_checkpoint_failure", ""), dir_)) << metrics;
}

TEST_F(EndCheckpointTest, TemporaryDiskErrorDoesNotLoseTheModel) {
  ProcessClusterOptions options = Options({});
  options.environment["server-1"] = {"PAWL_FAILPOINTS=checkpoint.part=error@2"};
  ExpectEndCheckpoint(End(StartCluster(options)), kSteps);
}

// As with Ctrl-C at that moment: there is nothing left to stop, and the result must not be lost.
TEST_F(EndCheckpointTest, LeavingSchedulerFinishesWritingTheResult) {
  ProcessClusterOptions options = Options({});
  // Longer than the scheduler waits for a save.
  options.environment["scheduler"] = {"PAWL_FAILPOINTS=report.writing=pause:12000"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  const auto has_result = [&](const GetStatusResponse&) {
    return absl::StrContains(cluster->Log("scheduler"), "digest ");
  };
  ASSERT_TRUE(cluster->WaitFor(has_result, kPatience).ok());
  cluster->node("scheduler").Signal(SIGTERM);
  const nlohmann::json metrics = End(cluster);
  EXPECT_EQ(metrics.value("state", ""), "COMPLETED");
  ExpectEndCheckpoint(metrics, kSteps);
}

// The job is restored through another name of the folder.
TEST_F(EndCheckpointTest, FolderIsRecognizedUnderEachOfItsNames) {
  ExpectEndCheckpoint(End(StartCluster(Options({}))), kSteps);
  const std::string link = dir_ + "-link";
  std::filesystem::create_directory_symlink(dir_, link);
  ExpectEndCheckpoint(End(StartCluster(Options({.restore = link}))), kSteps);
}

}  // namespace
}  // namespace pawl
