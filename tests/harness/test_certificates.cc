#include "tests/harness/test_certificates.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/harness/command_output.h"
#include "tests/harness/runfile.h"

namespace pawl {

absl::Status MakeTestCertificates(const std::string& folder, const std::string& job,
                                  const std::vector<std::string>& flags) {
  PAWL_ASSIGN_OR_RETURN(const std::string program, Runfile("deploy/tls/make_certificates"));
  std::vector<std::string> arguments = {absl::StrCat("--out=", folder),
                                        absl::StrCat("--job=", job)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return CommandOutput(program, arguments).status();
}

absl::Status MakeTestCertificateChain(const std::string& folder, const std::string& job,
                                      const std::string& begin, const std::string& end) {
  PAWL_ASSIGN_OR_RETURN(const std::string script, Runfile("tests/harness/certificate_chain.sh"));
  return CommandOutput("/bin/sh", {script, "make", folder, job, begin, end}).status();
}

absl::Status RevokeInTestCertificateChain(const std::string& folder, const std::string& role) {
  PAWL_ASSIGN_OR_RETURN(const std::string script, Runfile("tests/harness/certificate_chain.sh"));
  return CommandOutput("/bin/sh", {script, "revoke", folder, role}).status();
}

std::string TestCertificatesFolder(const std::string& name) {
  const std::string folder =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                   testing::UnitTest::GetInstance()->current_test_info()->name(), "-", name);
  std::filesystem::remove_all(folder);
  return folder;
}

std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace pawl
