#include "client_lib/security/tls_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

constexpr int64_t kDay = 86400;

class TlsFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestCertificatesFolder("files");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights",
                                     {"--roles=server,worker", "--hosts=10.0.0.7,node.example"})
                    .ok());
    dir_ = absl::StrCat(folder_, "/server");
  }

  absl::StatusOr<TlsFiles> Read(int64_t now = UnixNow()) {
    return ReadTlsFiles(Env::Real(), dir_, now);
  }
  std::string Path(const char* name) const { return absl::StrCat(dir_, "/", name); }
  void Copy(const std::string& from, const char* to) {
    std::filesystem::copy_file(absl::StrCat(folder_, "/", from), Path(to),
                               std::filesystem::copy_options::overwrite_existing);
  }
  // Expects an error that names `file` and contains `text`.
  static void ExpectRefused(const absl::StatusOr<TlsFiles>& files, const std::string& file,
                            const std::string& text) {
    ASSERT_FALSE(files.ok());
    const std::string message(files.status().message());
    EXPECT_TRUE(absl::StrContains(message, file)) << message;
    EXPECT_TRUE(absl::StrContains(message, text)) << message;
  }

  std::string folder_;
  std::string dir_;
};

TEST_F(TlsFilesTest, IdentityHostsAndEndAreRead) {
  const auto files = Read();
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->identity.Uri(), "spiffe://pawl.local/pawl/flights/server");
  EXPECT_EQ(files->hosts, (std::vector<std::string>{"10.0.0.7", "node.example"}));
  EXPECT_GT(files->not_after, UnixNow() + 89 * kDay);
  EXPECT_LT(files->not_after, UnixNow() + 91 * kDay);
}

TEST_F(TlsFilesTest, EachMissingFileIsNamed) {
  for (const char* file : {kCertificateFile, kKeyFile, kAuthoritiesFile}) {
    const std::string saved = absl::StrCat(Path(file), ".saved");
    std::filesystem::rename(Path(file), saved);
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
    ExpectRefused(Read(), Path(file), "");
    std::filesystem::rename(saved, Path(file));
  }
}

TEST_F(TlsFilesTest, MissingFolderIsNamed) {
  const auto files = ReadTlsFiles(Env::Real(), "/nonexistent", UnixNow());
  EXPECT_EQ(files.status(), absl::NotFoundError("there is no folder /nonexistent"));
}

TEST_F(TlsFilesTest, KeyOfAnotherCertificateIsRefused) {
  Copy("worker/key.pem", kKeyFile);
  ExpectRefused(Read(), Path(kKeyFile), "is not the key of");
}

TEST_F(TlsFilesTest, CertificateOfAnotherAuthorityIsRefused) {
  const std::string other = TestCertificatesFolder("other");
  ASSERT_TRUE(MakeTestCertificates(other, "flights").ok());
  std::filesystem::copy_file(absl::StrCat(other, "/server/ca.pem"), Path(kAuthoritiesFile),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Read(), Path(kCertificateFile), "is not accepted by the authorities in");
}

TEST_F(TlsFilesTest, ExpiredCertificateIsRefused) {
  ExpectRefused(Read(UnixNow() + 91 * kDay), Path(kCertificateFile),
                "has expired: it is valid from 20");
}

TEST_F(TlsFilesTest, CertificateOfTheFutureAsksForTheClock) {
  ExpectRefused(Read(UnixNow() - kDay), Path(kCertificateFile),
                "is not valid yet: it is valid from 20");
  ASSERT_TRUE(
      MakeTestCertificateChain(folder_, "flights", "2031-02-03 04:05", "2031-03-04 05:06").ok());
  ExpectRefused(
      Read(), Path(kCertificateFile),
      "is not valid yet: it is valid from 2031-02-03 04:05 UTC to 2031-03-04 05:06 UTC, and "
      "it is 20");
  ExpectRefused(Read(), Path(kCertificateFile),
                "now; replace it, or set this machine's clock if that is wrong");
}

TEST_F(TlsFilesTest, IntermediateAuthorityFollowsTheCertificate) {
  const std::string folder = TestCertificatesFolder("chain");
  ASSERT_TRUE(MakeTestCertificateChain(folder, "flights").ok());
  dir_ = absl::StrCat(folder, "/server");
  const auto files = Read();
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->identity.Uri(), "spiffe://pawl.local/pawl/flights/server");
  // The intermediate authority ends before the certificate.
  EXPECT_GT(files->not_after, UnixNow() + 9 * kDay);
  EXPECT_LT(files->not_after, UnixNow() + 11 * kDay);
  ExpectRefused(Read(UnixNow() + 11 * kDay), Path(kCertificateFile),
                "certificate has expired; it is 20");
  // Without it the chain has a gap.
  std::filesystem::copy_file(absl::StrCat(folder, "/authority/server.pem"), Path(kCertificateFile),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Read(), Path(kCertificateFile), "is not accepted by the authorities in");
  // An intermediate authority in ca.pem is no root.
  std::filesystem::copy_file(absl::StrCat(folder, "/authority/intermediate.pem"),
                             Path(kAuthoritiesFile),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused(Read(), Path(kCertificateFile), "is not accepted by the authorities in");
}

TEST_F(TlsFilesTest, KeyThatOthersCanReadIsRefused) {
  std::filesystem::permissions(Path(kKeyFile), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  ExpectRefused(Read(), Path(kKeyFile), "chmod 600");
}

TEST_F(TlsFilesTest, GarbageIsRefused) {
  for (const char* file : {kCertificateFile, kKeyFile, kAuthoritiesFile}) {
    const std::string saved = absl::StrCat(Path(file), ".saved");
    std::filesystem::rename(Path(file), saved);
    std::ofstream(Path(file)) << "-----BEGIN CERTIFICATE-----\nnonsense\n";
    std::filesystem::permissions(
        Path(file), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
    ExpectRefused(Read(), Path(file), "");
    std::filesystem::remove(Path(file));
    std::filesystem::rename(saved, Path(file));
  }
}

TEST_F(TlsFilesTest, CertificateWithoutIdentityIsRefused) {
  Copy("authority/cert.pem", kCertificateFile);
  Copy("authority/key.pem", kKeyFile);
  ExpectRefused(Read(), Path(kCertificateFile), "URI names");
}

}  // namespace
}  // namespace pawl
