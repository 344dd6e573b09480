// The command line of a program with subcommands: `pawlctl COMMAND [FLAGS]`. CLI11 parses it.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_
#define PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "deploy/pawlctl/exit_code.h"

// CLI11's header is large: only command_line.cc includes it.
namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace pawl {

// The commands of one program. A flag's value is written to a variable that its command owns.
//
//   CommandLine line("pawlctl", kVersion);
//   auto name = std::make_shared<std::string>();
//   CLI::App& greet = line.AddCommand("greet", "print a greeting", "Prints it.", [name] { ... });
//   AddFlag(greet, "--name", "NAME", *name, "The person to greet.", {.required = true});
//   return line.Run(arguments);
class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& version);
  ~CommandLine();

  // `summary` is the command's line in the list of all commands. `help` says what the command does
  // and shows examples. Run calls `run` and returns its exit code.
  CLI::App& AddCommand(const std::string& name, const std::string& summary, const std::string& help,
                       std::function<int()> run, absl::string_view exit_codes = kExitCodesHelp);

  // Lets words follow the flags of a command: a program and its arguments. Words after "--" may
  // look like flags and arrive unchanged, once all flags are set and checked (SetCheck).
  void AddProgram(CLI::App& command, const std::string& placeholder,
                  std::vector<std::string>& words, const std::string& help);

  // The command's output only shows what happens, so losing it is no failure.
  void PrintsProgress(CLI::App& command) { print_progress_.insert(&command); }

  // Parses the arguments (without the program's name) and runs their command, or prints the help
  // that they ask for. A mistake is reported on stderr with the flag, its value and what is
  // possible instead; the exit code is then kExitUsage. A command that succeeds but cannot write
  // its output to stdout ends with kExitFailed, unless PrintsProgress was called for it.
  int Run(std::vector<std::string> arguments);

 private:
  int OnParseError(const CLI::ParseError& error);

  const std::unique_ptr<CLI::App> app_;
  std::map<const CLI::App*, std::function<int()>> run_;
  std::set<const CLI::App*> print_progress_;
  // The words of the commands that take a program.
  std::map<const CLI::App*, std::vector<std::string>*> programs_;
};

// Makes a command line an error if `check` fails. `check` runs after the flags are set.
void SetCheck(CLI::App& command, std::function<absl::Status()> check);

// Sets `value` to what the text of a flag means. An error says what is possible.
absl::Status ParseFlagText(absl::string_view text, std::string& value);
absl::Status ParseFlagText(absl::string_view text, int32_t& value);
absl::Status ParseFlagText(absl::string_view text, uint32_t& value);
absl::Status ParseFlagText(absl::string_view text, uint64_t& value);
// Finite numbers only.
absl::Status ParseFlagText(absl::string_view text, float& value);
// More than 0 and at most 24 hours: "500ms", "1m30s".
absl::Status ParseFlagText(absl::string_view text, MonotonicDuration& value);

// Unset until the flag is given.
template <typename T>
absl::Status ParseFlagText(absl::string_view text, std::optional<T>& value) {
  return ParseFlagText(text, value.emplace());
}

// The elements are separated by commas.
template <typename T>
absl::Status ParseFlagText(absl::string_view text, std::vector<T>& values) {
  values.clear();
  if (text.empty()) return absl::OkStatus();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (const absl::Status status = ParseFlagText(part, values.emplace_back()); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

struct FlagTraits {
  // An empty value counts as missing.
  bool required = false;
  // The environment variable with the default; empty: none. It also replaces an empty value.
  std::string environment = {};
  // A switch that must be on too.
  CLI::Option* needs = nullptr;
};

using FlagParser = std::function<absl::Status(const std::string& text)>;

// Adds a flag with a value. `name` is "--name", or "name,--name" if the value may also come as a
// word of its own. If the flag comes more than once, the last value counts.
CLI::Option* AddParsedFlag(CLI::App& command, const std::string& name,
                           const std::string& placeholder, FlagParser parse,
                           const std::string& help, const FlagTraits& traits = {});
template <typename T>
CLI::Option* AddFlag(CLI::App& command, const std::string& name, const std::string& placeholder,
                     T& value, const std::string& help, const FlagTraits& traits = {}) {
  return AddParsedFlag(
      command, name, placeholder,
      [&value](const std::string& text) { return ParseFlagText(text, value); }, help, traits);
}

// Adds a flag without a value.
CLI::Option* AddSwitch(CLI::App& command, const std::string& name, bool& value,
                       const std::string& help);
// Adds a flag that stands for `bare_value` if it comes without a value.
void AddBareFlag(CLI::App& command, const std::string& name, const std::string& placeholder,
                 const std::string& bare_value, std::optional<MonotonicDuration>& value,
                 const std::string& help);
// Adds a flag that may be repeated. `values` keeps their order.
void AddRepeatedFlag(CLI::App& command, const std::string& name, const std::string& placeholder,
                     std::vector<std::string>& values, const std::string& help);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMAND_LINE_H_
