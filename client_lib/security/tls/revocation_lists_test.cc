#include "client_lib/security/tls/revocation_lists.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

// The folder of a server, with a list of revoked certificates.
class RevocationListsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestCertificatesFolder("tls");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights", {"--roles=server,reader"}).ok());
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights",
                                     {"--roles=server,reader",
                                      absl::StrCat("--revoke=", folder_, "/reader/cert.pem")})
                    .ok());
    dir_ = absl::StrCat(folder_, "/server");
    const auto lists = RevocationLists(Env::Real(), dir_);
    ASSERT_EQ(lists.size(), 1u);
    list_ = lists[0].first;
    EXPECT_TRUE(absl::EndsWith(list_, ".r0")) << list_;
  }

  absl::Status Check(const std::string& certificate = "") {
    return CheckRevocationLists(Env::Real(), dir_, certificate);
  }
  std::string Path(const std::string& name) const { return absl::StrCat(dir_, "/crl/", name); }
  void ExpectRefused(const std::string& name, const std::string& part) {
    const absl::Status status = Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_TRUE(absl::StrContains(status.message(), Path(name))) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
    std::filesystem::remove(Path(name));
    EXPECT_TRUE(Check().ok());
  }

  std::string folder_;
  std::string dir_;
  std::string list_;
};

TEST_F(RevocationListsTest, ListsAreAccepted) {
  EXPECT_TRUE(Check().ok());
  std::filesystem::copy_file(Path(list_), Path(list_.substr(0, list_.size() - 1) + "17"));
  // Kubernetes' names in a mounted secret.
  std::ofstream(Path("..data")) << "nonsense";
  EXPECT_TRUE(Check().ok());
  EXPECT_EQ(RevocationLists(Env::Real(), dir_).size(), 2u);
  std::filesystem::remove_all(Path(""));
  EXPECT_TRUE(Check().ok());
}

// OpenSSL would trust it.
TEST_F(RevocationListsTest, CertificatesOfAuthoritiesAreRefused) {
  const std::string name = list_.substr(0, 8) + ".0";
  std::filesystem::copy_file(absl::StrCat(folder_, "/authority/cert.pem"), Path(name));
  ExpectRefused(name, "has a certificate, which would be trusted");
  // Also behind a list.
  const std::string both = list_.substr(0, 8) + ".r1";
  std::filesystem::copy_file(Path(list_), Path(both));
  std::ofstream(Path(both), std::ios::app)
      << std::ifstream(absl::StrCat(folder_, "/authority/cert.pem")).rdbuf();
  ExpectRefused(both, "has a certificate, which would be trusted");
}

// OpenSSL would ignore it.
TEST_F(RevocationListsTest, ListsWithOtherNamesAreRefused) {
  for (const std::string& name :
       {std::string("revoked.pem"), list_.substr(0, 8) + ".r", list_.substr(0, 8) + ".rx",
        std::string("00000000.r0"), list_ + ".old"}) {
    std::filesystem::copy_file(Path(list_), Path(name));
    ExpectRefused(name, absl::StrCat("must be ", list_));
  }
}

TEST_F(RevocationListsTest, OwnRevokedCertificateIsRefused) {
  const auto certificate = [this](const std::string& role) {
    return ReadTestFile(absl::StrCat(folder_, "/", role, "/cert.pem"));
  };
  EXPECT_TRUE(Check(certificate("server")).ok());
  const absl::Status revoked = Check(certificate("reader"));
  EXPECT_EQ(revoked.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(revoked.message(), Path(list_))) << revoked;
  EXPECT_TRUE(absl::StrContains(revoked.message(), "cert.pem has been revoked")) << revoked;
  const std::string other = absl::StrCat(folder_, "-other");
  ASSERT_TRUE(MakeTestCertificates(other, "flights", {"--roles=reader"}).ok());
  EXPECT_TRUE(Check(ReadTestFile(absl::StrCat(other, "/reader/cert.pem"))).ok());
}

TEST_F(RevocationListsTest, GarbageIsRefused) {
  std::ofstream(Path("README")) << "nonsense";
  ExpectRefused("README", "has no list of revoked certificates");
}

}  // namespace
}  // namespace pawl
