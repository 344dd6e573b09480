#include "deploy/pawlctl/scheduler_connection.h"

#include <chrono>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/pawlctl/exit_code.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};

// Its job is ending, so it changes nothing more.
class EndingScheduler final : public Scheduler::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*,
                         GetStatusResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status Checkpoint(grpc::ServerContext*, const CheckpointRequest*,
                          CheckpointResponse*) override {
    return Refusal();
  }
  grpc::Status Scale(grpc::ServerContext*, const ScaleRequest*, ScaleResponse*) override {
    return Refusal();
  }
  grpc::Status Drain(grpc::ServerContext*, const DrainRequest*, DrainResponse*) override {
    return Refusal();
  }
  grpc::Status ReleaseRetained(grpc::ServerContext*, const ReleaseRetainedRequest*,
                               ReleaseRetainedResponse*) override {
    return Refusal();
  }
  grpc::Status StopJob(grpc::ServerContext*, const StopJobRequest*, StopJobResponse*) override {
    return Refusal();
  }

 private:
  static grpc::Status Refusal() { return {grpc::StatusCode::UNAVAILABLE, "the job is ending"}; }
};

TEST(SchedulerConnectionTest, RefusedChangeIsNotSilence) {
  EndingScheduler service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto security = Security::Open(SecurityOptions(), kAllRoles);
  ASSERT_TRUE(security.ok());
  SchedulerConnection scheduler(absl::StrCat("127.0.0.1:", port), **security);
  for (const absl::Status& refusal : {
           scheduler.Checkpoint("/c", kTimeout).status(),
           scheduler.Scale(ScaleRequest(), kTimeout).status(),
           scheduler.Drain(DrainRequest(), kTimeout),
           scheduler.ReleaseRetained(ReleaseRetainedRequest(), kTimeout).status(),
           scheduler.StopJob("why not", kTimeout),
       }) {
    EXPECT_EQ(ExitCodeOf(refusal), kExitFailed) << refusal;
    EXPECT_TRUE(absl::StrContains(refusal.message(), ": the job is ending")) << refusal;
    EXPECT_FALSE(absl::StrContains(refusal.message(), "does not answer")) << refusal;
  }
  server->Shutdown();
  const absl::Status silence = scheduler.StopJob("why not", kTimeout);
  EXPECT_EQ(ExitCodeOf(silence), kExitUnreachable) << silence;
  EXPECT_TRUE(absl::StrContains(silence.message(), "does not answer")) << silence;
}

}  // namespace
}  // namespace pawl
