#include "deploy/pawlctl/command_line.h"

#include "absl/algorithm/container.h"
#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

std::string FlagList(const CommandSpec& command) {
  if (command.flags.empty()) return "it takes none";
  return absl::StrCat("it takes --", absl::StrJoin(command.flags, ", --"));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const CommandSpec& command,
                                             absl::Span<const std::string> arguments) {
  CommandLine line;
  if (absl::c_linear_search(arguments, "--help") || absl::c_linear_search(arguments, "-h")) {
    line.help = true;
    return line;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string as_flag = arguments[i];
    if (!absl::StartsWith(as_flag, "--") && !command.argument.empty() &&
        !line.given.contains(command.argument)) {
      as_flag = absl::StrCat("--", command.argument, "=", arguments[i]);
    }
    absl::string_view text = as_flag;
    if (!absl::ConsumePrefix(&text, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("'", arguments[i], "' is not a flag; ",
                                                     command.name,
                                                     " takes flags alone: ", FlagList(command)));
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    const std::string name(parts.first);
    absl::CommandLineFlag* const flag =
        absl::c_linear_search(command.flags, name) ? absl::FindCommandLineFlag(name) : nullptr;
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(command.name, " has no flag --", name, "; ", FlagList(command)));
    }
    std::string value(parts.second);
    if (!absl::StrContains(text, '=')) {
      if (flag->IsOfType<bool>()) {
        value = "true";
      } else if (const auto bare = command.bare_flags.find(name);
                 bare != command.bare_flags.end()) {
        value = bare->second;
      } else if (++i < arguments.size()) {
        value = arguments[i];
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value: --", name, "=..."));
      }
    }
    line.given.insert(name);
    if (absl::c_linear_search(command.repeated_flags, name)) {
      line.repeated[name].push_back(value);
      continue;
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name, "=", value, " is not possible: ", error.empty() ? flag->Help() : error));
    }
  }
  return line;
}

std::string CommandHelp(absl::string_view program, const CommandSpec& command) {
  std::string text = absl::StrCat(
      "Usage: ", program, " ", command.name,
      command.argument.empty() ? "" : absl::StrCat(" ", absl::AsciiStrToUpper(command.argument)),
      command.flags.empty() ? "" : " [FLAGS]", "\n\n", command.help,
      command.flags.empty() ? "" : "\n\nFlags:\n");
  for (const std::string& name : command.flags) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr) continue;
    absl::StrAppend(&text, "  --", name,
                    flag->IsOfType<bool>()              ? ""
                    : command.bare_flags.contains(name) ? "[=...]"
                                                        : "=...");
    const auto own_help = command.flag_help.find(name);
    const bool is_own = own_help != command.flag_help.end();
    if (const std::string value = flag->DefaultValue();
        !value.empty() && !is_own && !flag->IsOfType<bool>()) {
      absl::StrAppend(&text, "  (default ", value, ")");
    }
    absl::StrAppend(&text, "\n");
    for (const absl::string_view line :
         absl::StrSplit(is_own ? own_help->second : flag->Help(), '\n')) {
      absl::StrAppend(&text, "      ", line, "\n");
    }
  }
  return text;
}

}  // namespace pawl
