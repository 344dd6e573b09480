#include "deploy/pawlctl/commands/checkpoint_commands.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "deploy/pawlctl/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "server/storage/checkpoint/checkpoint_store.h"

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

// Calls `before` before a part of a checkpoint is opened.
class WatchedEnv final : public ForwardingEnv {
 public:
  explicit WatchedEnv(std::function<absl::Status()> before)
      : ForwardingEnv(Env::Real()), before_(std::move(before)) {}
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    if (absl::EndsWith(path, ".part")) PAWL_RETURN_IF_ERROR(before_());
    return ForwardingEnv::OpenForRead(path);
  }

 private:
  const std::function<absl::Status()> before_;
};

void WriteCheckpoint(CheckpointStore& store, uint64_t step) {
  CheckpointManifest manifest;
  manifest.set_job_id(7);
  manifest.set_job_name("job");
  manifest.set_step(step);
  std::unique_ptr<CheckpointPartWriter> part = store.BeginPart({7, "job", step}, 0, 1).value();
  ASSERT_TRUE(part->Append("rows").ok());
  *manifest.add_parts() = part->Commit().value();
  const absl::Status written = store.WriteManifest(manifest);
  ASSERT_TRUE(written.ok()) << written;
}

TEST(CheckpointCommandsTest, CheckpointThatIsDeletedMeanwhileIsLeftOut) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/deleted");
  CheckpointStore store(Env::Real(), dir);
  WriteCheckpoint(store, 5);
  WriteCheckpoint(store, 6);
  WatchedEnv env([&store] { return store.DeleteOld("job", 1); });
  testing::internal::CaptureStdout();
  EXPECT_EQ(ListCheckpoints(dir, /*json=*/false, env), kExitDone);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_EQ(table.find(CheckpointStore::NameOf("job", 5)), std::string::npos) << table;
  EXPECT_NE(table.find(CheckpointStore::NameOf("job", 6)), std::string::npos) << table;
}

TEST(CheckpointCommandsTest, CheckpointThatCannotBeReadIsNotCalledDamaged) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/unreadable");
  CheckpointStore store(Env::Real(), dir);
  WriteCheckpoint(store, 5);
  WatchedEnv env([] { return absl::PermissionDeniedError("another user's"); });
  testing::internal::CaptureStdout();
  EXPECT_EQ(ListCheckpoints(dir, /*json=*/false, env), kExitFailed);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_NE(table.find("unreadable"), std::string::npos) << table;
}

}  // namespace
}  // namespace pawl
