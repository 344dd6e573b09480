// Finds files that Bazel provides for a test or tool.
#ifndef PAWL_TESTS_HARNESS_RUNFILE_H_
#define PAWL_TESTS_HARNESS_RUNFILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// Returns the absolute path of `path`, which is relative to the workspace's root
// ("server/pawl-server"). Works under `bazel test`, under `bazel run`, and for a program started
// directly. NOT_FOUND otherwise.
absl::StatusOr<std::string> Runfile(const std::string& path);

// Creates a new empty folder for test outputs under TEST_UNDECLARED_OUTPUTS_DIR, else under
// TEST_TMPDIR, else under the system's temporary folder. A number makes `name` unique.
absl::StatusOr<std::string> MakeOutputFolder(const std::string& name);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_RUNFILE_H_
