// Runs a system program for a test.
#ifndef PAWL_TESTS_HARNESS_COMMAND_OUTPUT_H_
#define PAWL_TESTS_HARNESS_COMMAND_OUTPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pawl {

// Runs `program`, an absolute path, and returns its output. UNAVAILABLE with the output if it
// fails, DEADLINE_EXCEEDED after ten seconds. Call it on the main thread (see ChildProcess).
absl::StatusOr<std::string> CommandOutput(const std::string& program,
                                          const std::vector<std::string>& arguments);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_COMMAND_OUTPUT_H_
