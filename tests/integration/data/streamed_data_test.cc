// Jobs that stream their training data.
#include <zlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client_lib/process/child_process.h"
#include "nlohmann/json.hpp"
#include "tests/harness/reference/reference_trainer.h"
#include "tests/harness/runfile.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kJobTimeout{100};
constexpr std::chrono::seconds kStepTimeout{30};
constexpr uint64_t kSteps = 2 * 30;

class StreamedDataTest : public TrainingTest {
 protected:
  void SetUp() override {
    WriteData({.samples = 1700, .fields = 5, .categories = 60}, 300);
    folder_ += "/days";
    std::filesystem::create_directories(folder_);
    std::filesystem::rename(train_, folder_ + "/day_1");
    const std::string plain = folder_ + "/plain";
    ASSERT_TRUE(
        WriteClicks({.samples = 1300, .fields = 5, .categories = 60, .seed = 3}, plain).ok());
    std::ifstream file(plain, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    gzFile packed = gzopen((folder_ + "/day_2.gz").c_str(), "wb");
    ASSERT_EQ(gzwrite(packed, text.data(), static_cast<unsigned>(text.size())),
              static_cast<int>(text.size()));
    ASSERT_EQ(gzclose(packed), Z_OK);
    std::filesystem::remove(plain);
  }

  std::string JobText(const std::string& data) const {
    return absl::StrCat("name: 'streamed' seed: 7 data { train: '", folder_, "/day_*' eval: '",
                        eval_, "' format: LIBSVM ", data, " }\n",
                        "model { fm { dim: 4 } } optimizer { adagrad { learning_rate: 0.1 } }\n",
                        "batch_size: 100 partitions: 16 logical_workers: 4 epochs: 2\n");
  }

  ProcessCluster* Start(const std::string& job, uint32_t workers, int step_delay_ms) {
    ProcessClusterOptions options;
    options.job = job;
    options.servers = 2;
    options.workers = workers;
    options.fixed_ports = true;
    options.lease = std::chrono::milliseconds(2500);
    for (uint32_t i = 0; i < workers; ++i) {
      const std::string worker = absl::StrCat("worker-", i);
      const auto folder = MakeOutputFolder(worker);
      EXPECT_TRUE(folder.ok()) << folder.status();
      options.flags[worker] = {absl::StrCat("--step_delay_ms=", step_delay_ms),
                               absl::StrCat("--data_dir=", folder.value_or(""))};
    }
    return StartCluster(options);
  }

  static void WaitForSteps(ProcessCluster& cluster, uint64_t steps) {
    const auto status = cluster.WaitFor(
        [&](const auto& now) {
          return now.steps() >= steps || now.state() == COMPLETED || now.state() == FAILED;
        },
        kStepTimeout);
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->state(), RUNNING) << "the job ended before the test disturbed it";
  }

  static std::string ReferenceDigestOf(const std::string& job) {
    const auto result = TrainReference(job);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return "";
    EXPECT_EQ(result->steps, kSteps);
    return absl::StrFormat("%08x", result->digest);
  }
};

constexpr char kStreamed[] = "window_samples: 200 block_bytes: 2048";

TEST_F(StreamedDataTest, AnyNumberOfWorkersWithKillsLeavesTheSameBits) {
  const std::string job = JobText(kStreamed);
  const std::string digest = ReferenceDigestOf(job);
  EXPECT_NE(digest, ReferenceDigestOf(JobText(""))) << "the order is that of data in memory";
  for (const uint32_t workers : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers"));
    ProcessCluster* const cluster = Start(job, workers, /*step_delay_ms=*/20);
    ASSERT_NE(cluster, nullptr);
    // In the midst of windows, and in both epochs.
    for (const uint64_t steps : {3, 17, 41}) {
      ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, steps));
      const std::string victim = absl::StrCat("worker-", steps % workers);
      ASSERT_TRUE(cluster->Kill(victim).ok());
      ASSERT_TRUE(cluster->Restart(victim).ok());
    }
    const nlohmann::json metrics = CompletedMetrics(*cluster, kJobTimeout);
    EXPECT_EQ(metrics.value("steps", uint64_t{0}), kSteps);
    EXPECT_EQ(metrics.value("digest", "none"), digest);
  }
}

TEST_F(StreamedDataTest, WithoutShufflingTheBitsAreThoseOfDataInMemory) {
  const std::string digest = ReferenceDigestOf(JobText("keep_order: true"));
  ProcessCluster* const cluster =
      Start(JobText(absl::StrCat("keep_order: true ", kStreamed)), 2, /*step_delay_ms=*/0);
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(CompletedMetrics(*cluster, kJobTimeout).value("digest", "none"), digest);
}

TEST_F(StreamedDataTest, FileThatChangesDuringTheJobFailsItByName) {
  ProcessCluster* const cluster = Start(JobText(kStreamed), 2, /*step_delay_ms=*/30);
  ASSERT_NE(cluster, nullptr);
  ASSERT_NO_FATAL_FAILURE(WaitForSteps(*cluster, 3));
  std::ofstream(folder_ + "/day_1", std::ios::app) << "1 1:1\n";
  ASSERT_TRUE(cluster->node("scheduler").WaitUntil(Clock::Real().Now() + kJobTimeout));
  const auto metrics = cluster->Metrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ((*metrics)["state"], "FAILED");
  EXPECT_TRUE(absl::StrContains((*metrics)["failure"].get<std::string>(),
                                folder_ + "/day_1: has changed since its index was made"))
      << (*metrics)["failure"];
}

TEST_F(StreamedDataTest, PawlctlRunPinsTheIdentityOfTheData) {
  const auto folder = MakeOutputFolder("run");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string job_file = *folder + "/the_job.pbtxt";
  const std::string job = JobText(kStreamed);
  std::ofstream(job_file) << job;
  const auto program = Runfile("deploy/pawlctl/pawlctl");
  ASSERT_TRUE(program.ok()) << program.status();
  std::filesystem::create_directories(*folder + "/index");
  const auto run =
      ChildProcess::Start({"pawlctl",
                           *program,
                           {"run", "--job=" + job_file, "--workers=2",
                            "--index_dir=" + *folder + "/index", "--out=" + *folder + "/out"},
                           *folder + "/pawlctl.log"});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->WaitUntil(Clock::Real().Now() + kJobTimeout));
  EXPECT_TRUE((*run)->Succeeded()) << (*run)->HowItEnded();
  std::ifstream metrics_file(*folder + "/out/metrics.json");
  const auto metrics = nlohmann::json::parse(metrics_file);
  EXPECT_EQ(metrics.value("digest", "none"), ReferenceDigestOf(job));
  std::ifstream written(*folder + "/out/job.pbtxt");
  const std::string text{std::istreambuf_iterator<char>(written), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(absl::StrContains(text, "data_id: \"")) << text;

  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(*folder + "/index"), {}), 2);
}

}  // namespace
}  // namespace pawl
