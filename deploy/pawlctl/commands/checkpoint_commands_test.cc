#include "deploy/pawlctl/commands/checkpoint_commands.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "deploy/pawlctl/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

// Never completes a checkpoint.
class SlowScheduler final : public Scheduler::Service {
 public:
  grpc::Status Checkpoint(grpc::ServerContext* context, const CheckpointRequest*,
                          CheckpointResponse*) override {
    withdrawn = Eventually([context] { return context->IsCancelled(); });
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "too late");
  }
  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*,
                         GetStatusResponse*) override {
    ++status_calls;
    return grpc::Status::OK;
  }

  std::atomic<bool> withdrawn{false};
  std::atomic<int> status_calls{0};
};

TEST(CheckpointCommandsTest, SlowCheckpointIsNotReportedAsUnreachableScheduler) {
  SlowScheduler service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ConnectionOptions options;
  options.scheduler = absl::StrCat("127.0.0.1:", port);
  options.timeout = std::chrono::milliseconds(300);
  auto security = Security::Open(SecurityOptions(), kAllRoles);
  ASSERT_TRUE(security.ok());
  options.security = *std::move(security);
  testing::internal::CaptureStderr();
  EXPECT_EQ(MakeCheckpoint(options, "/c"), kExitFailed);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("within --wait=0.3s"), std::string::npos) << message;
  EXPECT_EQ(message.find("does not answer"), std::string::npos) << message;
  EXPECT_EQ(service.status_calls, 1);
  server->Shutdown();
  EXPECT_TRUE(service.withdrawn);

  testing::internal::CaptureStderr();
  EXPECT_EQ(MakeCheckpoint(options, "/c"), kExitUnreachable);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("does not answer"), std::string::npos);
}

TEST(CheckpointCommandsTest, MissingFolderIsAnError) {
  const std::string missing = absl::StrCat(testing::TempDir(), "/missing");
  testing::internal::CaptureStderr();
  EXPECT_EQ(ListCheckpoints(missing, /*json=*/false), kExitFailed);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find(absl::StrCat("--dir=", missing)), std::string::npos) << message;

  const std::string empty = absl::StrCat(testing::TempDir(), "/empty");
  std::filesystem::create_directory(empty);
  EXPECT_EQ(ListCheckpoints(empty, /*json=*/false), kExitDone);
}

}  // namespace
}  // namespace pawl
