// A control channel has a thread of its own. The peer is another process, so gRPC in this process
// serves only the channel.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/grpc/grpc_control_channel.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

class ControlChannelTest : public ClusterTest {};

TEST_F(ControlChannelTest, WorksWhileAllGrpcThreadsAreBusy) {
  ProcessClusterOptions options;
  options.job = "name: 'quiet' partitions: 1 logical_workers: 1 consistency { mode: ASYNC }";
  options.servers = 1;
  options.expected_workers = 0;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  GrpcTransport transport(grpc::InsecureChannelCredentials());
  GrpcControlChannel control(cluster->scheduler_address(), grpc::InsecureChannelCredentials());
  const auto ask = [&control] {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    control.After(std::chrono::milliseconds(10), [&control, promise] {
      control.Call("/pawl.Scheduler/GetStatus", EncodeSmall(GetStatusRequest()), kTestPatience,
                   [promise](absl::Status status, IncomingMessage) {
                     promise->set_value(std::move(status));
                   });
    });
    return promise->get_future().get();
  };
  absl::Status status;
  ASSERT_TRUE(Eventually([&] { return (status = ask()).ok(); })) << status;

  absl::Notification release;
  std::atomic<int> busy{0}, ended{0};
  constexpr int kBusy = 64;
  for (int i = 0; i < kBusy; ++i) {
    transport.After(std::chrono::milliseconds(0), [&] {
      ++busy;
      release.WaitForNotification();
      ++ended;
    });
  }
  EXPECT_TRUE(Eventually([&] { return busy > 0; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(), absl::OkStatus());
  EXPECT_EQ(ended, 0);
  release.Notify();
  EXPECT_TRUE(Eventually([&] { return ended == kBusy; }));
}

}  // namespace
}  // namespace pawl
