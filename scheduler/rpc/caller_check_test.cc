#include "scheduler/rpc/caller_check.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

std::optional<Peer> PeerWith(absl::string_view role, std::vector<std::string> hosts = {}) {
  return Peer{*ParseIdentity(absl::StrCat("spiffe://d/pawl/j/", role)), std::move(hosts)};
}

RegisterRequest Registration(Role role, const std::string& node = "",
                             const std::string& address = "10.0.0.1:7000") {
  RegisterRequest request;
  request.set_role(role);
  request.set_node(node);
  request.set_address(address);
  return request;
}

TEST(CallerCheckTest, CertificateRoleDecidesWhatRegisters) {
  EXPECT_TRUE(CheckRegistrationIsOf(PeerWith("server"), Registration(SERVER_ROLE)).ok());
  EXPECT_TRUE(CheckRegistrationIsOf(PeerWith("worker"), Registration(WORKER_ROLE)).ok());
  for (const char* role : {"worker", "client", "reader", "operator"})
    EXPECT_TRUE(CheckRegistrationIsOf(PeerWith(role), Registration(CLIENT_ROLE)).ok()) << role;
  for (const char* role : {"worker", "client", "reader", "operator", "scheduler"}) {
    EXPECT_EQ(CheckRegistrationIsOf(PeerWith(role), Registration(SERVER_ROLE)).code(),
              absl::StatusCode::kPermissionDenied)
        << role;
  }
  for (const char* role : {"server", "client", "operator"}) {
    EXPECT_EQ(CheckRegistrationIsOf(PeerWith(role), Registration(WORKER_ROLE)).code(),
              absl::StatusCode::kPermissionDenied)
        << role;
  }
}

TEST(CallerCheckTest, ReadersAndOperatorsOnlyRead) {
  for (const char* role : {"reader", "operator"}) EXPECT_TRUE(OnlyReads(PeerWith(role))) << role;
  for (const char* role : {"server", "worker", "client"})
    EXPECT_FALSE(OnlyReads(PeerWith(role))) << role;
  EXPECT_FALSE(OnlyReads(std::nullopt));
}

TEST(CallerCheckTest, NodeOfAnotherRoleIsRefused) {
  EXPECT_TRUE(CheckNodeIsOf(PeerWith("server"), "server-3").ok());
  EXPECT_TRUE(CheckNodeIsOf(PeerWith("operator"), "client-1").ok());
  EXPECT_FALSE(CheckNodeIsOf(PeerWith("worker"), "server-3").ok());
  EXPECT_FALSE(CheckNodeIsOf(PeerWith("worker"), "").ok());
  EXPECT_FALSE(
      CheckRegistrationIsOf(PeerWith("worker"), Registration(WORKER_ROLE, "server-0")).ok());
}

TEST(CallerCheckTest, AddressMustBeOneOfTheCertificate) {
  const auto peer = PeerWith("server", {"10.0.0.1", "node.example", "fd00::1"});
  for (const char* address : {"10.0.0.1:7000", "node.example:1", "[fd00::1]:7000"})
    EXPECT_TRUE(CheckRegistrationIsOf(peer, Registration(SERVER_ROLE, "", address)).ok());
  const absl::Status status =
      CheckRegistrationIsOf(peer, Registration(SERVER_ROLE, "", "10.0.0.2:7000"));
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(status.message().find("10.0.0.2:7000"), std::string::npos) << status;
}

TEST(CallerCheckTest, WithoutTlsEveryClaimPasses) {
  EXPECT_TRUE(CheckRegistrationIsOf(std::nullopt, Registration(SERVER_ROLE)).ok());
  EXPECT_TRUE(CheckNodeIsOf(std::nullopt, "server-3").ok());
}

}  // namespace
}  // namespace pawl
