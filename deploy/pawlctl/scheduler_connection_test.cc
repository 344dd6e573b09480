#include "deploy/pawlctl/scheduler_connection.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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

// Shuts down the client's socket of a call. The client is in this process.
void BreakConnection(const grpc::ServerContext& context) {
  const std::string peer = context.peer();
  int client_port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(peer.substr(peer.rfind(':') + 1), &client_port)) << peer;
  constexpr int kDescriptors = 1024;
  int found = 0;
  for (int descriptor = 0; descriptor < kDescriptors; ++descriptor) {
    sockaddr_in6 address = {};
    socklen_t length = sizeof(address);
    // The port is at the same place in an address of either family.
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        (address.sin6_family != AF_INET && address.sin6_family != AF_INET6) ||
        ntohs(address.sin6_port) != client_port)
      continue;
    EXPECT_EQ(shutdown(descriptor, SHUT_RDWR), 0);
    ++found;
  }
  EXPECT_EQ(found, 1) << peer;
}

// The connection breaks during the first call of each kind.
class BreakingScheduler final : public Scheduler::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*,
                         GetStatusResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status Checkpoint(grpc::ServerContext* context, const CheckpointRequest*,
                          CheckpointResponse*) override {
    return BreakFirst(*context, checkpoints);
  }
  grpc::Status Scale(grpc::ServerContext* context, const ScaleRequest*, ScaleResponse*) override {
    return BreakFirst(*context, scales);
  }
  grpc::Status Drain(grpc::ServerContext* context, const DrainRequest*, DrainResponse*) override {
    return BreakFirst(*context, drains);
  }
  grpc::Status ReleaseRetained(grpc::ServerContext* context, const ReleaseRetainedRequest*,
                               ReleaseRetainedResponse*) override {
    return BreakFirst(*context, releases);
  }
  grpc::Status StopJob(grpc::ServerContext* context, const StopJobRequest*,
                       StopJobResponse*) override {
    return BreakFirst(*context, stops);
  }

  std::atomic<int> checkpoints{0}, scales{0}, drains{0}, releases{0}, stops{0};

 private:
  static grpc::Status BreakFirst(const grpc::ServerContext& context, std::atomic<int>& calls) {
    if (calls++ == 0) BreakConnection(context);
    return grpc::Status::OK;
  }
};

class SchedulerConnectionTest : public testing::Test {
 protected:
  // Starts a server and connects to it.
  void Start(Scheduler::Service& service) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    absl::StatusOr<std::unique_ptr<Security>> security =
        Security::Open(SecurityOptions(), kAllRoles);
    ASSERT_TRUE(security.ok());
    security_ = *std::move(security);
    connection_ =
        std::make_unique<SchedulerConnection>(absl::StrCat("127.0.0.1:", port), *security_);
  }

  std::unique_ptr<Security> security_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<SchedulerConnection> connection_;
};

TEST_F(SchedulerConnectionTest, IdempotentChangeIsRepeatedOnceAfterItsConnectionBreaks) {
  BreakingScheduler service;
  Start(service);
  for (const absl::Status& done : {
           connection_->Scale(ScaleRequest(), kTimeout).status(),
           connection_->Drain(DrainRequest(), kTimeout),
           connection_->ReleaseRetained(ReleaseRetainedRequest(), kTimeout).status(),
           connection_->StopJob("why not", kTimeout),
       })
    EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(service.scales, 2);
  EXPECT_EQ(service.drains, 2);
  EXPECT_EQ(service.releases, 2);
  EXPECT_EQ(service.stops, 2);
}

TEST_F(SchedulerConnectionTest, CheckpointWhoseConnectionBreaksIsNeitherRepeatedNorRefused) {
  BreakingScheduler service;
  Start(service);
  const absl::Status broken = connection_->Checkpoint("/c", kTimeout).status();
  EXPECT_EQ(ExitCodeOf(broken), kExitUnreachable) << broken;
  EXPECT_EQ(service.checkpoints, 1);
}

TEST_F(SchedulerConnectionTest, RefusedChangeIsNotSilence) {
  EndingScheduler service;
  Start(service);
  for (const absl::Status& refusal : {
           connection_->Checkpoint("/c", kTimeout).status(),
           connection_->Scale(ScaleRequest(), kTimeout).status(),
           connection_->Drain(DrainRequest(), kTimeout),
           connection_->ReleaseRetained(ReleaseRetainedRequest(), kTimeout).status(),
           connection_->StopJob("why not", kTimeout),
       }) {
    EXPECT_EQ(ExitCodeOf(refusal), kExitFailed) << refusal;
    EXPECT_TRUE(absl::StrContains(refusal.message(), ": the job is ending")) << refusal;
    EXPECT_FALSE(absl::StrContains(refusal.message(), "does not answer")) << refusal;
  }
  server_->Shutdown();
  const absl::Status silence = connection_->StopJob("why not", kTimeout);
  EXPECT_EQ(ExitCodeOf(silence), kExitUnreachable) << silence;
  EXPECT_TRUE(absl::StrContains(silence.message(), "does not answer")) << silence;
}

TEST(SilenceLimitTest, SchedulerMayBeSilentForAWhile) {
  SilenceLimit silence(std::chrono::seconds(60));
  const absl::Status gone = absl::UnavailableError("");
  const MonotonicTime begin{};
  EXPECT_FALSE(silence.Allows(gone, begin)) << "it has never answered";
  EXPECT_TRUE(silence.Allows(absl::OkStatus(), begin));
  EXPECT_TRUE(silence.Allows(gone, begin + std::chrono::seconds(60)));
  EXPECT_TRUE(silence.Allows(absl::CancelledError(), begin + std::chrono::seconds(60)));
  EXPECT_FALSE(silence.Allows(absl::PermissionDeniedError(""), begin));
  EXPECT_FALSE(silence.Allows(gone, begin + std::chrono::seconds(61)));
  EXPECT_TRUE(silence.Allows(absl::OkStatus(), begin + std::chrono::seconds(100)));
  EXPECT_TRUE(silence.Allows(gone, begin + std::chrono::seconds(160)));
}

}  // namespace
}  // namespace pawl
