// Tests the faults that ProcessCluster injects.
#include "tests/harness/process_cluster.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Direction = ByteProxy::Direction;

std::unique_ptr<ProcessCluster> StartCluster(bool proxies) {
  ProcessClusterOptions options;
  options.job = "name: 'harness' partitions: 4 logical_workers: 1 consistency { mode: ASYNC }";
  options.expected_workers = 0;
  options.fixed_ports = true;
  options.proxies = proxies;
  auto cluster = ProcessCluster::Start(options);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

// Uses a connection of its own to the address that nodes use.
bool SchedulerAnswersAt(const std::string& address) {
  const auto stub = Scheduler::NewStub(grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), ChannelSettings(ChannelKind::kControl)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  GetStatusResponse response;
  return stub->GetStatus(&context, GetStatusRequest(), &response).ok();
}

TEST(ProcessClusterTest, KilledProcessRestartsAtItsAddress) {
  const auto cluster = StartCluster(/*proxies=*/false);
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(cluster->Kill("scheduler").ok());
  EXPECT_TRUE(cluster->node("scheduler").KilledBy(SIGKILL));
  EXPECT_FALSE(cluster->GetStatus().ok());
  EXPECT_EQ(cluster->Restart("server-0").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(cluster->Restart("scheduler").ok());
  EXPECT_TRUE(
      cluster->WaitFor([](const GetStatusResponse&) { return true; }, std::chrono::seconds(20))
          .ok());
  EXPECT_TRUE(SchedulerAnswersAt(cluster->scheduler_address()));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(cluster->folder(), "/scheduler.1.log")));
}

TEST(ProcessClusterTest, PausedProcessIsSilentUntilItContinues) {
  const auto cluster = StartCluster(/*proxies=*/false);
  ASSERT_NE(cluster, nullptr);
  cluster->Pause("scheduler");
  EXPECT_EQ(cluster->GetStatus().status().code(), absl::StatusCode::kDeadlineExceeded);
  cluster->Continue("scheduler");
  EXPECT_TRUE(
      cluster->WaitFor([](const GetStatusResponse&) { return true; }, std::chrono::seconds(20))
          .ok());
}

TEST(ProcessClusterTest, FaultsBetweenTwoNodesSpareTheOthers) {
  const auto cluster = StartCluster(/*proxies=*/true);
  ASSERT_NE(cluster, nullptr);
  EXPECT_GT(cluster->proxy("scheduler").counters().bytes[0], 0u);
  cluster->proxy("scheduler").SetFaults(Direction::kToTarget, {.hold = true}, "server-0");
  const auto silent = cluster->WaitFor(
      [](const GetStatusResponse& status) {
        return status.nodes_size() == 1 && status.nodes(0).silent_ms() > 1000;
      },
      std::chrono::seconds(20));
  EXPECT_TRUE(silent.ok()) << silent.status();
  // The test connects through the same proxy.
  EXPECT_TRUE(SchedulerAnswersAt(cluster->scheduler_address()));
  cluster->proxy("scheduler").Heal();
  const auto heard = cluster->WaitFor(
      [](const GetStatusResponse& status) { return status.nodes(0).silent_ms() < 500; },
      std::chrono::seconds(20));
  EXPECT_TRUE(heard.ok()) << heard.status();
}

TEST(ProcessClusterTest, ServerAdvertisesItsProxy) {
  const auto cluster = StartCluster(/*proxies=*/true);
  ASSERT_NE(cluster, nullptr);
  const auto address = cluster->AddressOf("server-0");
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, cluster->proxy("server-0").address());
}

}  // namespace
}  // namespace pawl
