#include "scheduler/startup/rebuild_listener.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/security/audit_log.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{30};

class RebuildListenerTest : public testing::Test {
 protected:
  void Begin(size_t max_bytes) {
    auto listener = RebuildListener::Listen({"127.0.0.1", 0}, grpc::InsecureServerCredentials(),
                                            audit_.get(), max_bytes);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    stub_ = Scheduler::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", listener_->port()),
                                                   grpc::InsecureChannelCredentials()));
  }
  static RegisterRequest Server(uint32_t number, uint32_t partitions) {
    RegisterRequest request;
    request.set_role(SERVER_ROLE);
    request.set_node(absl::StrCat("server-", number));
    request.set_address("10.0.0.1:7000");
    request.set_process_nonce(number + 1);
    for (uint32_t p = 0; p < partitions; ++p) {
      request.mutable_held_job()->mutable_routing()->add_primary(number);
      request.mutable_held_job()->mutable_routing()->add_replicas()->add_backups(number + 1);
    }
    return request;
  }
  grpc::StatusCode Register(const RegisterRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    RegisterResponse response;
    return stub_->Register(&context, request, &response).error_code();
  }
  uint32_t PartitionsOf(const std::string& node) const {
    for (const RegisterRequest& request : listener_->Registrations()) {
      if (request.node() == node)
        return static_cast<uint32_t>(request.held_job().routing().primary_size());
    }
    return 0;
  }

  // Null unless a test sets it before Begin.
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<RebuildListener> listener_;
  std::unique_ptr<Scheduler::Stub> stub_;
};

TEST_F(RebuildListenerTest, LastRegistrationOfEachServerCounts) {
  Begin(kMaxRegistrationBytes);
  for (const uint32_t partitions : {1000, 10}) {
    for (const uint32_t number : {0, 1}) {
      EXPECT_EQ(Register(Server(number, partitions)), grpc::StatusCode::UNAVAILABLE);
    }
  }
  EXPECT_EQ(listener_->Registrations().size(), 2u);
  EXPECT_EQ(PartitionsOf("server-1"), 10u);
  HeartbeatRequest heartbeat;
  heartbeat.mutable_server();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  HeartbeatResponse response;
  EXPECT_EQ(stub_->Heartbeat(&context, heartbeat, &response).error_code(),
            grpc::StatusCode::ABORTED);
}

TEST_F(RebuildListenerTest, OperatorsCallsAreAudited) {
  const std::string path = testing::TempDir() + "/audit.jsonl";
  auto audit = AuditLog::Open(path);
  ASSERT_TRUE(audit.ok()) << audit.status();
  audit_ = *std::move(audit);
  Begin(kMaxRegistrationBytes);
  EXPECT_EQ(Register(Server(0, 1)), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  StopJobResponse response;
  const grpc::Status stopped = stub_->StopJob(&context, StopJobRequest(), &response);
  EXPECT_FALSE(stopped.ok());
  std::ifstream file(path);
  std::string line, further;
  std::getline(file, line);
  EXPECT_TRUE(absl::StrContains(line, "\"method\":\"StopJob\"")) << line;
  EXPECT_TRUE(absl::StrContains(line, stopped.error_message())) << line;
  EXPECT_FALSE(std::getline(file, further)) << further;
}

TEST_F(RebuildListenerTest, ChallengeTravelsToTheServer) {
  Begin(kMaxRegistrationBytes);
  RegisterRequest request = Server(0, 10);
  request.set_rebuild_challenge(0);
  for (const uint32_t counted : {0, 1}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    RegisterResponse response;
    const absl::Status again = FromGrpcStatus(stub_->Register(&context, request, &response));
    request.set_rebuild_challenge(RebuildChallengeOf(again));
    EXPECT_NE(request.rebuild_challenge(), 0u) << again;
    EXPECT_EQ(listener_->Registrations().size(), counted);
  }
}

TEST_F(RebuildListenerTest, RegistrationBytesAreBounded) {
  const size_t bytes = Server(0, 1000).SpaceUsedLong();
  EXPECT_LT(bytes, 1000u * 206) << "what kMaxRegistrationBytes goes by";
  Begin(2 * bytes + bytes / 2);
  EXPECT_EQ(Register(Server(0, 1000)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Register(Server(1, 1000)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Register(Server(2, 1000)), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Register(Server(1, 2000)), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(PartitionsOf("server-1"), 1000u) << "what it said before counts";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Register(Server(0, 1000)), grpc::StatusCode::UNAVAILABLE) << "it takes its own place";
  }
  EXPECT_EQ(Register(Server(1, 10)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Register(Server(2, 1000)), grpc::StatusCode::UNAVAILABLE) << "there is room now";
  EXPECT_EQ(listener_->Registrations().size(), 3u);
}

}  // namespace
}  // namespace pawl
