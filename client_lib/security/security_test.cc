#include "client_lib/security/security.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

class SecurityOpenTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("PAWL_TLS_DIR");
    unsetenv("PAWL_TOKEN");
    folder_ = TestCertificatesFolder("tls");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights", {"--roles=client,reader"}).ok());
    client_ = absl::StrCat(folder_, "/client");
  }

  void ExpectRefused(const SecurityOptions& options, const std::string& part) {
    const auto opened = Security::Open(options, kAllRoles);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(opened.status().message(), part)) << opened.status();
  }

  std::string folder_;
  std::string client_;
};

TEST_F(SecurityOpenTest, ContradictionsAreRefused) {
  ExpectRefused({.tls_dir = client_, .insecure = true}, "contradict each other");
  ExpectRefused({.tls_dir = client_, .authorities_file = client_ + "/ca.pem"}, "--ca goes with");
  ExpectRefused({.insecure = true, .token = "x"}, "contradict each other");
  ExpectRefused({.token = "x"}, "set --ca=FILE");
  // The flag does not hide the environment.
  setenv("PAWL_TLS_DIR", client_.c_str(), 1);
  ExpectRefused(WithEnvironment({.insecure = true}), "PAWL_TLS_DIR in the environment");
  ExpectRefused(WithEnvironmentOrToken({.insecure = true}), "PAWL_TLS_DIR in the environment");
}

TEST_F(SecurityOpenTest, FlagsCountBeforeTheEnvironment) {
  setenv("PAWL_TLS_DIR", client_.c_str(), 1);
  setenv("PAWL_TOKEN", "token", 1);
  EXPECT_EQ(WithEnvironment({}).tls_dir, client_);
  EXPECT_EQ(WithEnvironment({.tls_dir = "other"}).tls_dir, "other");
  // Daemons have no token.
  EXPECT_FALSE(WithEnvironment({}).has_token());
  EXPECT_EQ(WithEnvironmentOrToken({}).token, "token");
  EXPECT_EQ(WithEnvironmentOrToken({}).tls_dir, client_);
  EXPECT_EQ(WithEnvironmentOrToken({.token_file = "file"}).token, "");
  EXPECT_FALSE(WithEnvironmentOrToken({.tls_dir = folder_ + "/reader"}).has_token());
  std::filesystem::remove(folder_ + "/reader/cert.pem");
  EXPECT_EQ(WithEnvironmentOrToken({.tls_dir = folder_ + "/reader"}).token, "token");
}

TEST_F(SecurityOpenTest, OpeningAgainAndAgainNeedsNoMoreDescriptors) {
  const auto open = [&] {
    auto opened = Security::Open({.tls_dir = client_}, kAllRoles);
    EXPECT_TRUE(opened.ok()) << opened.status();
    // As a client does: gRPC's channels hold the files, too.
    (*opened)->To(RoleSet(PeerRole::kServer));
    return *std::move(opened);
  };
  open();
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 200; ++i) open();
  EXPECT_LE(OpenDescriptors(), before);
  std::vector<std::unique_ptr<Security>> kept;
  for (int i = 0; i < 200; ++i) kept.push_back(open());
  EXPECT_LE(OpenDescriptors(), before);
}

}  // namespace
}  // namespace pawl
