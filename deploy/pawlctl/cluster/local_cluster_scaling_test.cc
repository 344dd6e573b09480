#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "client_lib/base/clock.h"
#include "deploy/pawlctl/cluster/local_cluster.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{30};

// A program that sleeps until it is killed.
std::string IdleProgram() {
  std::string path = testing::TempDir() + "idle";
  std::ofstream(path) << "#!/bin/sh\nexec sleep 600\n";
  chmod(path.c_str(), 0755);
  return path;
}

class LocalClusterScalingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto out = OutFolder::Open(testing::TempDir() + "out");
    ASSERT_TRUE(out.ok()) << out.status();
    out_ = *std::move(out);
    const std::string program = IdleProgram();
    cluster_ = std::make_unique<LocalCluster>(Programs{program, program, program}, *out_, 2, 0,
                                              /*max_restarts=*/3);
    ASSERT_TRUE(cluster_->StartScheduler().ok());
    ASSERT_TRUE(cluster_->StartNodes("127.0.0.1:1").ok());
    ASSERT_EQ(cluster_->group().Running(), 3u);
    status_.mutable_scale()->set_servers(2);
  }

  void KillAll() {
    cluster_->group().SignalAll(SIGKILL);
    const MonotonicTime limit = Clock::Real().Now() + kPatience;
    while (cluster_->group().Running() > 0 && Clock::Real().Now() < limit)
      std::this_thread::yield();
    ASSERT_EQ(cluster_->group().Running(), 0u);
  }

  std::unique_ptr<OutFolder> out_;
  std::unique_ptr<LocalCluster> cluster_;
  GetStatusResponse status_;
};

TEST_F(LocalClusterScalingTest, DeadServerThatMayRestartIsNotMissing) {
  KillAll();
  ASSERT_TRUE(cluster_->StartMissing(status_).ok());
  EXPECT_EQ(cluster_->group().Running(), 0u) << "it may be restarted";
  for (ChildProcess* const ended : cluster_->group().TakeEnded()) {
    ASSERT_TRUE(cluster_->group().Restart(*ended, Clock::Real().Now()).has_value());
  }
  ASSERT_TRUE(cluster_->StartMissing(status_).ok());
  EXPECT_EQ(cluster_->group().Running(), 0u) << "it will be started again";
}

// Waits for the first line of a file; empty if it does not appear.
std::string FirstLine(const std::string& path) {
  const MonotonicTime limit = Clock::Real().Now() + kPatience;
  while (Clock::Real().Now() < limit) {
    std::ifstream file(path);
    std::string line;
    if (std::getline(file, line) && !file.eof()) return line;
    std::this_thread::yield();
  }
  return "";
}

TEST(LocalClusterDevicesTest, WorkersGetDevicesInTurn) {
  const std::string path = testing::TempDir() + "sayer";
  std::ofstream(path) << "#!/bin/sh\necho \"host=$NCCL_HOSTID $*\"\nexec sleep 600\n";
  chmod(path.c_str(), 0755);
  auto out = OutFolder::Open(testing::TempDir() + "devices");
  ASSERT_TRUE(out.ok()) << out.status();
  LocalCluster cluster({path, path, path}, **out, 1, 5, /*max_restarts=*/0, {"cuda:0", "cpu"},
                       {"--collectives=gloo", "--cuda_graphs"});
  ASSERT_TRUE(cluster.StartScheduler().ok());
  ASSERT_TRUE(cluster.StartNodes("127.0.0.1:1").ok());
  const std::string server = FirstLine((*out)->log("unnamed-server-0"));
  EXPECT_EQ(server.find("--device"), std::string::npos) << server;
  const char* const expected[][2] = {{"host= ", "--device=cuda:0"},
                                     {"host= ", "--device=cpu"},
                                     {"host=pawl-1 ", "--device=cuda:0"},
                                     {"host= ", "--device=cpu"},
                                     {"host=pawl-2 ", "--device=cuda:0"}};
  for (size_t worker = 0; worker < 5; ++worker) {
    const std::string line = FirstLine((*out)->log("unnamed-worker-" + std::to_string(worker)));
    EXPECT_EQ(line.find(expected[worker][0]), 0u) << worker << ": " << line;
    EXPECT_NE(line.find(expected[worker][1]), std::string::npos) << worker << ": " << line;
    EXPECT_NE(line.find("--collectives=gloo --cuda_graphs"), std::string::npos)
        << worker << ": " << line;
  }
}

TEST_F(LocalClusterScalingTest, ServerThatIsNotRestartedIsMissing) {
  KillAll();
  cluster_->group().TakeEnded();
  ASSERT_TRUE(cluster_->StartMissing(status_).ok());
  EXPECT_EQ(cluster_->group().Running(), 2u);
}

}  // namespace
}  // namespace pawl
