// Certificates for tests, made by deploy/tls/make_certificates.
#ifndef PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_
#define PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// Runs the program with --out=`folder` and --job=`job`. `folder`/ROLE is then the --tls_dir of a
// process with that role. Call it on the main thread (see ChildProcess). The test needs
// "//deploy/tls:make_certificates" among its data.
absl::Status MakeTestCertificates(const std::string& folder, const std::string& job,
                                  const std::vector<std::string>& flags = {});

// A new folder of that name for this test.
std::string TestCertificatesFolder(const std::string& name);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_TEST_CERTIFICATES_H_
