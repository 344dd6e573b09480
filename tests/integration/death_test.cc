// A process that dies, hangs or cannot continue, where none can replace it. Every other process
// must end within 10 s and name the cause; none may hang.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/generated_data.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kLease{3};
constexpr std::chrono::seconds kEndTimeout{20};
constexpr std::chrono::seconds kStartTimeout{20};

class DeathTest : public ClusterTest {
 protected:
  ProcessCluster* StartTraining(const std::string& train,
                                const std::string& consistency = "mode: SYNC") {
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'doomed' seed: 1 data { train: '", train, "' format: LIBSVM }\n",
        "model { fm { dim: 4 } } optimizer { sgd { learning_rate: 0.1 } } consistency { ",
        consistency,
        " }\nbatch_size: 100 epochs: 1000000 partitions: 8 logical_workers: 2 durability: MEMORY");
    options.lease = kLease;
    // No process takes over before the job fails.
    options.flags["scheduler"] = {"--worker_return_timeout_s=1", "--worker_takeover_grace_s=60",
                                  "--recovery_timeout_s=1"};
    for (const char* server : {"server-0", "server-1"})
      options.flags[server] = {"--scheduler_timeout_s=3"};
    options.servers = 2;
    options.workers = 2;
    return StartCluster(options);
  }
  std::string TrainFile() const {
    std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
    EXPECT_TRUE(WriteClicks({.samples = 2000}, train).ok());
    return train;
  }

  // Sends `signal` to `victim` during training. All other processes must end with an error, and
  // their logs must contain `name`.
  void KillAndExpectFailure(const std::string& victim, int signal, const std::string& name) {
    ProcessCluster* const cluster = StartTraining(TrainFile());
    ASSERT_NE(cluster, nullptr);
    ASSERT_TRUE(
        cluster->WaitFor([](const auto& status) { return status.steps() > 5; }, kStartTimeout)
            .ok());
    cluster->node(victim).Signal(signal);
    const MonotonicTime deadline = Clock::Real().Now() + kEndTimeout;
    for (const std::string& other : cluster->names()) {
      if (other == victim) continue;
      SCOPED_TRACE(other);
      ASSERT_TRUE(cluster->node(other).WaitUntil(deadline))
          << "still runs " << Seconds(kEndTimeout) << " s later";
      EXPECT_EQ(cluster->node(other).HowItEnded(), "exited with code 1");
      EXPECT_NE(cluster->Log(other).find(name), std::string::npos) << cluster->Log(other);
    }
    const auto metrics = cluster->Metrics();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ((*metrics)["state"], "FAILED");
    EXPECT_NE((*metrics)["failure"].get<std::string>().find(name), std::string::npos)
        << (*metrics)["failure"];
    EXPECT_TRUE((*metrics)["digest"].is_null());
  }
};

TEST_F(DeathTest, KilledServerEndsTheJob) { KillAndExpectFailure("server-1", SIGKILL, "server-1"); }

TEST_F(DeathTest, KilledWorkerEndsTheJob) { KillAndExpectFailure("worker-0", SIGKILL, "worker-0"); }

TEST_F(DeathTest, ServersGiveUpAnAbsentScheduler) {
  ProcessCluster* const cluster = StartTraining(TrainFile());
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 5; }, kStartTimeout).ok());
  ASSERT_TRUE(cluster->Kill("scheduler").ok());
  for (const char* server : {"server-0", "server-1"}) {
    SCOPED_TRACE(server);
    ASSERT_TRUE(cluster->node(server).WaitUntil(Clock::Real().Now() + kEndTimeout));
    EXPECT_EQ(cluster->node(server).HowItEnded(), "exited with code 1");
    EXPECT_NE(cluster->Log(server).find("has been silent for 3 s"), std::string::npos)
        << cluster->Log(server);
  }
}

TEST_F(DeathTest, HungServerEndsTheJob) { KillAndExpectFailure("server-0", SIGSTOP, "server-0"); }

TEST_F(DeathTest, HungWorkerEndsTheJob) { KillAndExpectFailure("worker-1", SIGSTOP, "worker-1"); }

TEST_F(DeathTest, ServerThatWakesAfterItsLeaseExits) {
  ProcessCluster* const cluster = StartTraining(TrainFile());
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 5; }, kStartTimeout).ok());
  cluster->node("server-0").Signal(SIGSTOP);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.state() == FAILED; }, kEndTimeout)
          .ok());
  cluster->node("server-0").Signal(SIGCONT);
  const absl::Status ended = cluster->WaitUntilAllEnded(kEndTimeout);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(cluster->node("server-0").HowItEnded(), "exited with code 1");
}

// The dead server held no data, so another one may replace it.
TEST_F(DeathTest, StartingJobWaitsForAReplacementServer) {
  ProcessClusterOptions options;
  options.job =
      "name: 'early' seed: 1 partitions: 8 logical_workers: 1 consistency { mode: SYNC } "
      "durability: MEMORY";
  options.servers = 1;
  options.expected_workers = 1;
  options.lease = kLease;
  // A second server never comes, so that nothing is placed before the first one dies.
  options.flags["scheduler"] = {"--start_timeout_ms=4000", "--servers=2"};
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  cluster->node("server-0").Signal(SIGKILL);
  const absl::Status ended = cluster->WaitUntilAllEnded(kEndTimeout);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(cluster->node("scheduler").HowItEnded(), "exited with code 1");
}

TEST_F(DeathTest, MalformedDataLineFailsTheJob) {
  const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/bad.libsvm");
  ASSERT_TRUE(WriteClicks({.samples = 20}, train).ok());
  std::ofstream(train, std::ios::app) << "1 3:1 4:x\n";
  ProcessClusterOptions options;
  options.job = absl::StrCat("name: 'bad' seed: 1 data { train: '", train,
                             "' format: LIBSVM } model { fm { dim: 4 } } ",
                             "optimizer { sgd { learning_rate: 0.1 } } consistency { mode: SYNC } "
                             "batch_size: 10 epochs: 1 ",
                             "partitions: 8 logical_workers: 1");
  // The worker may fail before the test sees it, so the test does not wait for its registration.
  options.expected_workers = 1;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  cluster->AddWorker().IgnoreError();
  const absl::Status ended = cluster->WaitUntilAllEnded(kEndTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  const std::string where = "bad.libsvm:21:7";
  for (const std::string& name : cluster->names()) {
    EXPECT_FALSE(cluster->node(name).Succeeded()) << name;
    EXPECT_NE(cluster->Log(name).find(where), std::string::npos) << name << ":\n"
                                                                 << cluster->Log(name);
  }
}

// Every host of the rank gets the same refusal.
TEST_F(DeathTest, RefusedPushFailsTheJob) {
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'full' seed: 1 data { train: '", TrainFile(), "' format: LIBSVM } ",
      "model { fm { dim: 4 } } optimizer { sgd { learning_rate: 0.1 } } consistency { mode: SYNC "
      "} ",
      "batch_size: 100 epochs: 1000000 partitions: 8 logical_workers: 2 durability: MEMORY");
  options.flags["server-0"] = {"--max_rows_per_partition=1"};
  options.expected_workers = 1;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  // The worker may fail before the test sees it.
  cluster->AddWorker().IgnoreError();
  const absl::Status ended = cluster->WaitUntilAllEnded(kEndTimeout);
  ASSERT_TRUE(ended.ok()) << ended;
  for (const std::string& name : cluster->names()) {
    EXPECT_FALSE(cluster->node(name).Succeeded()) << name;
    EXPECT_NE(cluster->Log(name).find("the limit is 1"), std::string::npos) << name << ":\n"
                                                                            << cluster->Log(name);
  }
}

TEST_F(DeathTest, MissingDataFileFailsTheJob) {
  ProcessClusterOptions options;
  options.job =
      "name: 'missing' seed: 1 data { train: '/no/such.libsvm' format: LIBSVM } model { fm { dim: "
      "4 } } "
      "optimizer { sgd { learning_rate: 0.1 } } batch_size: 10 epochs: 1";
  options.expected_workers = 1;
  options.start_timeout = std::chrono::seconds(10);
  const auto cluster = ProcessCluster::Start(options);
  ASSERT_FALSE(cluster.ok());
  EXPECT_NE(cluster.status().message().find("/no/such.libsvm"), absl::string_view::npos)
      << cluster.status();
}

}  // namespace
}  // namespace pawl
