// The pawlctl commands that read and change parameters, as a client of the job.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/pawlctl/commands/status_commands.h"

namespace pawl {

struct PullOptions {
  ConnectionOptions connection;
  std::string table;
  // Of a sparse table.
  std::vector<uint64_t> keys;
  // Of a dense table; unset: all of it.
  std::optional<uint64_t> block;
};

struct PushOptions {
  ConnectionOptions connection;
  std::string table;
  // Of a sparse table.
  std::optional<uint64_t> key;
  // The gradient of the row, or of the whole dense table.
  std::vector<float> values;
};

// Each prints its answer to stdout or its error to stderr, and returns the exit code.
int PullCommand(const PullOptions& options);
int PushCommand(const PushOptions& options);
int DigestCommand(const ConnectionOptions& options);

// What the flags of these commands hold. INVALID_ARGUMENT, naming `flag` and the part that is
// wrong.
absl::StatusOr<std::vector<uint64_t>> ParseKeys(absl::string_view flag,
                                                const std::vector<std::string>& parts);
// Only finite numbers.
absl::StatusOr<std::vector<float>> ParseValues(absl::string_view flag,
                                               const std::vector<std::string>& parts);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_TABLE_COMMANDS_H_
