// Where Bazel has put a file that a test or tool names among its data.
#ifndef PAWL_TESTS_HARNESS_RUNFILE_H_
#define PAWL_TESTS_HARNESS_RUNFILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace pawl {

// The absolute path of `path`, which counts from the workspace's root ("server/pawl-server"), under
// `bazel test`, `bazel run`, or when the program is started by itself. NOT_FOUND otherwise.
absl::StatusOr<std::string> Runfile(const std::string& path);

// A new empty folder for what a test leaves to be read: under TEST_UNDECLARED_OUTPUTS_DIR,
// else under TEST_TMPDIR, else under the system's temporary folder. `name` is made unique by a
// number.
absl::StatusOr<std::string> MakeOutputFolder(const std::string& name);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_RUNFILE_H_
