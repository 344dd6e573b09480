#include "deploy/pawlctl/health_check.h"

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "client_lib/daemon/health_endpoint.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{10};

TEST(HealthCheckTest, TellsServingFromNotServingAndSilent) {
  const auto security = Security::Open({}, kAllRoles);
  ASSERT_TRUE(security.ok()) << security.status();
  auto endpoint = HealthEndpoint::Listen("127.0.0.1:0", (*security)->Listening());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string address = (*endpoint)->address();

  absl::StatusOr<bool> serving = IsServing(address, **security, kTimeout);
  EXPECT_TRUE(serving.ok() && !*serving) << serving.status();
  (*endpoint)->SetServing(true);
  serving = IsServing(address, **security, kTimeout);
  EXPECT_TRUE(serving.ok() && *serving) << serving.status();

  *endpoint = nullptr;
  serving = IsServing(address, **security, kTimeout);
  EXPECT_EQ(serving.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(serving.status().message(), address)) << serving.status();
}

}  // namespace
}  // namespace pawl
