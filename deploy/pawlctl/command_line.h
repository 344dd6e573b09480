// Command lines of subcommands: `program COMMAND --flag=value ... ARGUMENT ...`.
//
// Abseil's flags hold the values, check them and know their help texts;
// absl::ParseCommandLine itself knows no subcommands, keeps only the last of a
// repeated flag, and ends the program in its own way, with its own exit code.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_
#define PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pawl {

// One subcommand, for its help and for what its command line may say.
struct CommandSpec {
  std::string name;
  // One line, for the list of all commands.
  std::string summary;
  // What it does, and examples.
  std::string help;
  // Names of absl flags, in the order in which the help shows them.
  std::vector<std::string> flags;
  // Those of them that may come more than once: absl::Flag<std::string>s, whose value is not used.
  std::vector<std::string> repeated_flags = {};
  // The flag that a word which is no flag stands for: `pawlctl drain server-1`. Empty: there are no
  // such words.
  std::string argument = {};
  // Flags that may come without a value, and what they mean then.
  absl::flat_hash_map<std::string, std::string> bare_flags = {};
  // What flags mean here where that is not what they mean to other commands; shown without a
  // default.
  absl::flat_hash_map<std::string, std::string> flag_help = {};
};

struct CommandLine {
  // --help was there; nothing else counts then.
  bool help = false;
  // The values of repeated flags, in their order.
  absl::flat_hash_map<std::string, std::vector<std::string>> repeated;
  // The flags that were there.
  absl::flat_hash_set<std::string> given;
};

// Sets the flags that `arguments` (what comes after the command) give, as --name=value or --name
// value, or
// --name for a boolean or a bare flag. INVALID_ARGUMENT, saying what would be right, for anything
// else.
absl::StatusOr<CommandLine> ParseCommandLine(const CommandSpec& command,
                                             absl::Span<const std::string> arguments);

// The text of `program COMMAND --help`.
std::string CommandHelp(absl::string_view program, const CommandSpec& command);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_
