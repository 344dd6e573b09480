// Checkpoints of whole clusters, made during training and restored on other clusters.
#include <cstdio>
#include <filesystem>
#include <random>
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
// 2 epochs of 2000 samples in batches of 64.
constexpr uint64_t kSteps = 64;

class CheckpointTest : public TrainingTest {
 protected:
  struct Shape {
    uint32_t servers = 2;
    uint32_t workers = 2;
    uint32_t replicas = 1;
    std::string restore = {};
    std::string consistency = "mode: SYNC";
    std::string checkpoint = "every_steps: 10";
    int step_delay_ms = 20;
    // More settings of the job.
    std::string settings = {};
  };

  void SetUp() override {
    WriteData({.samples = 2000}, 200);
    dir_ = folder_ + "/checkpoints";
  }

  ProcessClusterOptions Options(const Shape& shape) const {
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'saved' seed: 5 data { train: '", train_, "' eval: '", eval_, "' format: LIBSVM }\n",
        "model { deepfm { dim: 4 hidden: [8] } } optimizer { adam { learning_rate: 0.01 } }\n",
        "evaluation { every_steps: 25 early_stopping { metric: AUC patience: 9 } } consistency { ",
        shape.consistency,
        " }\n batch_size: 64 epochs: 2 logical_workers: 2 partitions: 8 durability: MEMORY\n",
        shape.settings, "\n",
        shape.checkpoint.empty()
            ? ""
            : absl::StrCat("checkpoint { dir: '", dir_, "' keep: 2 ", shape.checkpoint, " }"));
    options.servers = shape.servers;
    options.workers = shape.workers;
    options.replicas = shape.replicas;
    if (!shape.restore.empty()) options.flags["scheduler"].push_back("--restore=" + shape.restore);
    for (uint32_t i = 0; i < shape.workers; ++i) {
      options.flags[absl::StrCat("worker-", i)] = {
          absl::StrCat("--step_delay_ms=", shape.step_delay_ms)};
    }
    return options;
  }

  // The digest of a job that runs to its end.
  std::string DigestOf(ProcessCluster& cluster) {
    const absl::Status ended = cluster.WaitForSuccess(kJobTimeout);
    EXPECT_TRUE(ended.ok()) << ended;
    const auto metrics = cluster.Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok() || !(*metrics)["digest"].is_string()) return "none";
    EXPECT_EQ((*metrics)["steps"], kSteps);
    return (*metrics)["digest"].get<std::string>();
  }
  std::string UndisturbedDigest(const std::string& settings = "") {
    ProcessCluster* const cluster =
        StartCluster(Options({.checkpoint = "", .step_delay_ms = 0, .settings = settings}));
    return cluster == nullptr ? "not started" : DigestOf(*cluster);
  }

  // Waits for this many checkpoints and some more steps, then kills all processes.
  void KillAfter(ProcessCluster& cluster, uint64_t checkpoints) {
    const auto made = cluster.WaitFor(
        [&](const GetStatusResponse& status) {
          return status.checkpoint().completed() >= checkpoints;
        },
        kPatience);
    ASSERT_TRUE(made.ok()) << made.status();
    const uint64_t until =
        made->checkpoint().last_step() + std::uniform_int_distribution<uint64_t>(0, 9)(random_);
    std::printf("killing all processes at step %llu\n", static_cast<unsigned long long>(until));
    ASSERT_TRUE(
        cluster
            .WaitFor([&](const GetStatusResponse& status) { return status.steps() >= until; },
                     kPatience)
            .ok());
    for (const std::string& name : cluster.names()) cluster.node(name).Signal(SIGKILL);
    for (const std::string& name : cluster.names()) ASSERT_TRUE(cluster.Kill(name).ok());
  }

  std::vector<std::string> CompleteCheckpoints() const {
    const CheckpointStore store(Env::Real(), dir_);
    std::vector<std::string> names;
    const CheckpointListing listing = store.List("saved").value();
    for (const CheckpointListing::Entry& entry : listing.complete) {
      const absl::Status whole = store.Verify(entry.name);
      EXPECT_TRUE(whole.ok()) << whole;
      names.push_back(entry.name);
    }
    return names;
  }

  static void FlipByte(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(file, nullptr) << path;
    std::fseek(file, 100, SEEK_SET);
    const int byte = std::fgetc(file);
    std::fseek(file, 100, SEEK_SET);
    std::fputc(byte ^ 1, file);
    std::fclose(file);
  }

  std::string dir_;
  std::mt19937 random_{std::random_device{}()};
};

TEST_F(CheckpointTest, KilledJobContinuesOnOtherClustersBitIdentically) {
  const std::string expected = UndisturbedDigest();
  ProcessCluster* cluster =
      StartCluster(Options({.servers = 2, .replicas = 2, .step_delay_ms = 40}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 1);
  cluster = StartCluster(
      Options({.servers = 3, .workers = 1, .replicas = 1, .restore = dir_, .step_delay_ms = 40}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 1);
  cluster = StartCluster(Options({.servers = 1, .workers = 2, .replicas = 1, .restore = dir_}));
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(DigestOf(*cluster), expected);
}

// The sum over two ranks has the same bits on any host.
TEST_F(CheckpointTest, CutIncludesTheWorkersDensePart) {
  const std::string dense =
      "dense_path: ALLREDUCE all_reduce { bucket_bytes: 1024 write_back_steps: 6 }";
  const std::string expected = UndisturbedDigest(dense);
  // At steps 12, 24 and so on.
  ProcessCluster* cluster = StartCluster(Options({.step_delay_ms = 40, .settings = dense}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 1);
  for (const std::string& name : CompleteCheckpoints())
    EXPECT_EQ(std::stoull(name.substr(name.size() - 20)) % 6, 0u) << name;
  cluster = StartCluster(Options(
      {.servers = 1, .workers = 1, .restore = dir_, .step_delay_ms = 40, .settings = dense}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 1);
  cluster = StartCluster(Options({.servers = 3, .restore = dir_, .settings = dense}));
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(DigestOf(*cluster), expected);
}

// A cut is taken when a step closes, and the best parameters are kept after one has closed. With
// clip_global_norm the close is a phase of its own.
TEST_F(CheckpointTest, ClippedJobContinuesBitIdentically) {
  const std::string clips = "clip_global_norm: 0.1";
  const std::string expected = UndisturbedDigest(clips);
  EXPECT_NE(expected, UndisturbedDigest());
  ProcessCluster* cluster =
      StartCluster(Options({.replicas = 2, .step_delay_ms = 40, .settings = clips}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 1);
  cluster = StartCluster(Options({.servers = 3, .workers = 1, .restore = dir_, .settings = clips}));
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(DigestOf(*cluster), expected);
}

TEST_F(CheckpointTest, RestoredJobHasAllReplicas) {
  const std::string expected = UndisturbedDigest();
  ProcessCluster* cluster = StartCluster(Options({.servers = 1, .step_delay_ms = 40}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 2);
  cluster =
      StartCluster(Options({.servers = 3, .replicas = 2, .restore = dir_, .step_delay_ms = 60}));
  ASSERT_NE(cluster, nullptr);
  const auto repaired = cluster->WaitFor(
      [](const GetStatusResponse& status) {
        uint32_t replicas = 0;
        for (const NodeStatus& node : status.nodes()) replicas += node.partitions();
        return replicas == 16;
      },
      kPatience);
  EXPECT_TRUE(repaired.ok()) << repaired.status();
  EXPECT_EQ(DigestOf(*cluster), expected);
}

TEST_F(CheckpointTest, CheckpointsChangeNoBitsAndTheLastAreRetained) {
  const std::string expected = UndisturbedDigest();
  ProcessCluster* const cluster = StartCluster(Options({.checkpoint = "every_steps: 5"}));
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(DigestOf(*cluster), expected);
  const std::vector<std::string> names = CompleteCheckpoints();
  // The newest checkpoint is that of the end.
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], CheckpointStore::NameOf("saved", kSteps, /*is_final=*/true));
  EXPECT_EQ(std::stoull(names[1].substr(names[1].size() - 20)) % 5, 0u) << names[1];
}

TEST_F(CheckpointTest, DamagedCheckpointIsRefusedAndItsPredecessorRestored) {
  const std::string expected = UndisturbedDigest();
  ProcessCluster* cluster = StartCluster(Options({.step_delay_ms = 40}));
  ASSERT_NE(cluster, nullptr);
  KillAfter(*cluster, 2);
  const std::vector<std::string> names = CompleteCheckpoints();
  ASSERT_EQ(names.size(), 2u);
  const std::string part = absl::StrCat(dir_, "/", names[0], "/p3.part");
  FlipByte(part);
  const absl::Status refused = ProcessCluster::Start(Options({.restore = dir_})).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(absl::StrContains(refused.message(), absl::StrCat(part, " is damaged at offset ")))
      << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(),
                                absl::StrCat("the checkpoint before it, ", names[1], ", is whole")))
      << refused;
  // A start that fails for another reason changes nothing.
  ProcessClusterOptions elsewhere = Options({.restore = absl::StrCat(dir_, "/", names[1])});
  elsewhere.flags["scheduler"].emplace_back("--metrics_listen=192.0.2.1:0");
  const absl::Status no_metrics = ProcessCluster::Start(elsewhere).status();
  EXPECT_TRUE(absl::StrContains(no_metrics.message(), "--metrics_listen=192.0.2.1:0"))
      << no_metrics;
  EXPECT_TRUE(std::filesystem::exists(part)) << "the later checkpoint must stay";
  cluster = StartCluster(Options({.restore = absl::StrCat(dir_, "/", names[1])}));
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(DigestOf(*cluster), expected);
  // The damaged checkpoint does not block new ones.
  for (const std::string& name : CompleteCheckpoints()) EXPECT_GT(name, names[1]);
}

// server-1 writes 4 of the 8 parts of the third checkpoint.
TEST_F(CheckpointTest, DeathDuringACheckpointLeavesEarlierOnes) {
  const std::string expected = UndisturbedDigest();
  for (const auto& [victim, failpoint] : {std::pair("server-1", "checkpoint.part=crash@11"),
                                          {"scheduler", "checkpoint.manifest=crash@3"},
                                          {"scheduler", "checkpoint.renamed=crash@3"}}) {
    SCOPED_TRACE(failpoint);
    dir_ += "x";
    ProcessClusterOptions options = Options({.step_delay_ms = 30});
    options.scheduler_program = "tests/chaos/pawl-scheduler-with-failpoints";
    options.server_program = "tests/chaos/pawl-server-with-failpoints";
    options.environment[victim] = {absl::StrCat("PAWL_FAILPOINTS=", failpoint)};
    ProcessCluster* cluster = StartCluster(options);
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(cluster->node(victim).WaitUntil(Clock::Real().Now() + kPatience));
    ASSERT_TRUE(cluster->node(victim).KilledBy(SIGKILL)) << cluster->node(victim).HowItEnded();
    for (const std::string& name : cluster->names()) ASSERT_TRUE(cluster->Kill(name).ok());
    EXPECT_GE(CompleteCheckpoints().size(), 2u);
    cluster = StartCluster(Options({.servers = 1, .restore = dir_, .step_delay_ms = 0}));
    ASSERT_NE(cluster, nullptr);
    EXPECT_EQ(DigestOf(*cluster), expected);
  }
}

TEST_F(CheckpointTest, AnotherRunDoesNotMixCheckpoints) {
  ProcessCluster* const cluster = StartCluster(Options({}));
  ASSERT_NE(cluster, nullptr);
  DigestOf(*cluster);
  const absl::Status refused = ProcessCluster::Start(Options({})).status();
  EXPECT_TRUE(
      absl::StrContains(refused.message(), absl::StrCat("continue from it with --restore=", dir_)))
      << refused;
}

TEST_F(CheckpointTest, BoundedJobContinuesFromARequestedCheckpoint) {
  const std::string bounded = "mode: BOUNDED staleness: 3";
  ProcessCluster* cluster =
      StartCluster(Options({.consistency = bounded, .checkpoint = "", .step_delay_ms = 40}));
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster
          ->WaitFor([](const GetStatusResponse& status) { return status.steps() > 5; }, kPatience)
          .ok());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  CheckpointRequest request;
  request.set_dir(dir_);
  CheckpointResponse response;
  const grpc::Status status = cluster->scheduler().Checkpoint(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(CompleteCheckpoints(),
            std::vector<std::string>{std::filesystem::path(response.folder()).filename().string()});
  for (const std::string& name : cluster->names()) ASSERT_TRUE(cluster->Kill(name).ok());
  cluster = StartCluster(Options(
      {.servers = 3, .restore = response.folder(), .consistency = bounded, .checkpoint = ""}));
  ASSERT_NE(cluster, nullptr);
  DigestOf(*cluster);
}

}  // namespace
}  // namespace pawl
