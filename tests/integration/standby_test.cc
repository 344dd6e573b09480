// A standby scheduler takes over the job of a killed scheduler, through etcd and through a shared
// folder.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/store/testing/etcd_cluster.h"
#include "tests/harness/free_address.h"
#include "tests/harness/generated_data.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kStartTimeout{20};
constexpr std::chrono::seconds kJobTimeout{60};

class StandbyTest : public ClusterTest {
 protected:
  static std::string Folder(const std::string& name) {
    std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
    std::filesystem::create_directories(folder);
    return folder;
  }

  // Trains with a scheduler and a standby, and kills the first if `kill`. Returns the digest at the
  // end.
  std::string DigestWith(const std::string& store, bool kill) {
    const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
    EXPECT_TRUE(WriteClicks({.samples = 2000}, train).ok());
    const auto standby_address = FreeAddress();
    EXPECT_TRUE(standby_address.ok()) << standby_address.status();
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'standby' seed: 5 data { train: '", train, "' format: LIBSVM }\n",
        "model { fm { dim: 4 } } optimizer { adam { learning_rate: 0.01 } } consistency { mode: "
        "SYNC }\n",
        "batch_size: 64 epochs: 3 logical_workers: 1 partitions: 8 durability: MEMORY");
    options.servers = 0;
    options.expected_workers = 1;
    const std::vector<std::string> flags = {"--servers=2", absl::StrCat("--store=", store)};
    options.flags["scheduler"] = flags;
    ProcessCluster* const cluster = StartCluster(options);
    if (cluster == nullptr) return "no cluster";
    const std::string folder = cluster->folder();
    EXPECT_TRUE(cluster
                    ->AddProcess("standby", "scheduler/pawl-scheduler",
                                 {absl::StrCat("--listen=", *standby_address),
                                  absl::StrCat("--data_dir=", folder, "/standby"),
                                  absl::StrCat("--job=", folder, "/job.pbtxt"), "--workers=1",
                                  flags[0], flags[1]})
                    .ok());
    const std::string both =
        absl::StrCat("--scheduler=", cluster->scheduler_address(), ",", *standby_address);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(cluster->AddServer({both}).ok());
    EXPECT_TRUE(cluster->AddWorker({both, "--step_delay_ms=60"}).ok());
    const auto running =
        cluster->WaitFor([](const auto& status) { return status.steps() > 8; }, kStartTimeout);
    EXPECT_TRUE(running.ok()) << running.status();
    if (kill) {
      EXPECT_TRUE(cluster->Kill("scheduler").ok());
    }
    for (const std::string& name : cluster->names()) {
      if (kill && name == "scheduler") continue;
      EXPECT_TRUE(cluster->node(name).WaitUntil(Clock::Real().Now() + kJobTimeout))
          << name << " still runs";
      EXPECT_TRUE(cluster->node(name).Succeeded())
          << name << " " << cluster->node(name).HowItEnded();
    }
    const auto metrics = cluster->Metrics(kill ? "standby" : "scheduler");
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok() || !(*metrics)["digest"].is_string()) return "no digest";
    return (*metrics)["digest"].get<std::string>();
  }
};

TEST_F(StandbyTest, StandbyTakesOverThroughASharedFolder) {
  const std::string expected = DigestWith(absl::StrCat("file:", Folder("quiet")), /*kill=*/false);
  EXPECT_EQ(DigestWith(absl::StrCat("file:", Folder("shared")), /*kill=*/true), expected);
}

TEST_F(StandbyTest, StandbyTakesOverThroughEtcd) {
  EtcdClusterOptions options;
  options.folder = Folder("etcd");
  const auto etcd = EtcdCluster::Start(options);
  ASSERT_TRUE(etcd.ok()) << etcd.status();
  const std::string store = absl::StrCat("etcd://", (*etcd)->endpoints()[0], "/");
  const std::string expected = DigestWith(absl::StrCat(store, "quiet"), /*kill=*/false);
  EXPECT_EQ(DigestWith(absl::StrCat(store, "killed"), /*kill=*/true), expected);
}

}  // namespace
}  // namespace pawl
