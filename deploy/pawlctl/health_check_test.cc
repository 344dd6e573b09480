#include "deploy/pawlctl/health_check.h"

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{10};

TEST(HealthCheckTest, TellsServingFromNotServingAndSilent) {
  const auto security = Security::Open({}, kAllRoles);
  ASSERT_TRUE(security.ok()) << security.status();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string address = absl::StrCat("127.0.0.1:", port);

  absl::StatusOr<bool> serving = IsServing(address, **security, kTimeout);
  EXPECT_TRUE(serving.ok() && *serving) << serving.status();
  server->GetHealthCheckService()->SetServingStatus(false);
  serving = IsServing(address, **security, kTimeout);
  EXPECT_TRUE(serving.ok() && !*serving) << serving.status();

  server = nullptr;
  serving = IsServing(address, **security, kTimeout);
  EXPECT_EQ(serving.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(serving.status().message(), address)) << serving.status();
}

}  // namespace
}  // namespace pawl
