#include "scheduler/rpc/grpc_server_caller.h"

#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/server_control.grpc.pb.h"

namespace pawl {
namespace {

// Answers when the test allows it.
class SlowControl final : public ServerControl::Service {
 public:
  grpc::Status KeepBest(grpc::ServerContext*, const KeepBestRequest*, KeepBestResponse*) override {
    started.set_value();
    may_answer.get_future().wait_for(kTestPatience);
    return grpc::Status::OK;
  }
  std::promise<void> started;
  std::promise<void> may_answer;
};

TEST(GrpcServerCallerTest, UnusedServerIsForgottenAfterItsCalls) {
  SlowControl control;
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&control);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);

  GrpcServerCaller caller(grpc::InsecureChannelCredentials());
  std::promise<absl::Status> answered;
  caller.Call(address, kKeepBestRpc.name, KeepBestRequest(), kTestPatience,
              std::make_shared<KeepBestResponse>(),
              [&](absl::Status status) { answered.set_value(std::move(status)); });
  ASSERT_EQ(control.started.get_future().wait_for(kTestPatience), std::future_status::ready);
  caller.KeepOnly({});
  EXPECT_EQ(caller.servers(), 1u) << "its call is in progress";
  control.may_answer.set_value();
  EXPECT_TRUE(answered.get_future().get().ok());
  caller.KeepOnly({address});
  EXPECT_EQ(caller.servers(), 1u);
  // The answer arrives just before the call ends.
  Eventually([&] {
    caller.KeepOnly({});
    return caller.servers() == 0;
  });
  EXPECT_EQ(caller.servers(), 0u);
  // A returning server gets a new channel.
  std::promise<absl::Status> again;
  caller.Call(address, kCreateTableRpc.name, CreateTableOnServerRequest(), kTestPatience,
              std::make_shared<CreateTableOnServerResponse>(),
              [&](absl::Status status) { again.set_value(std::move(status)); });
  EXPECT_EQ(again.get_future().get().code(), absl::StatusCode::kUnimplemented);
  caller.Shutdown();
  server->Shutdown();
}

}  // namespace
}  // namespace pawl
