// Certificates for tests, made by deploy/tls/make_certificates.
#ifndef PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_
#define PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// Runs the program with --out=`folder` and --job=`job`. `folder`/ROLE is then the --tls_dir of a
// process with that role. Call it on the main thread (see ChildProcess). The test needs
// "//deploy/tls:make_certificates" among its data.
absl::Status MakeTestCertificates(const std::string& folder, const std::string& job,
                                  const std::vector<std::string>& flags = {});

// The same for servers, workers and operators, with certificates of an intermediate authority,
// whose own certificate follows the process's in cert.pem; ca.pem has the root. They are valid from
// `begin` to `end`, as date reads them, such as "-1 hour".
absl::Status MakeTestCertificateChain(const std::string& folder, const std::string& job,
                                      const std::string& begin = "-1 hour",
                                      const std::string& end = "+20 days");
// Revokes that role's certificate, in the crl folders of all roles. Call it once.
absl::Status RevokeInTestCertificateChain(const std::string& folder, const std::string& role);

// A new folder of that name for this test.
std::string TestCertificatesFolder(const std::string& name);

// The whole file; empty if it cannot be read.
std::string ReadTestFile(const std::string& path);
// The clock that certificates are compared with, in Unix seconds.
int64_t UnixNow();

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_
