#include "deploy/pawlctl/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace pawl {
namespace {

constexpr size_t kCommandColumns = 15;
constexpr char kCommands[] = "Commands";

bool TakesNoValue(const CLI::Option& flag) { return flag.get_items_expected_max() == 0; }

// "--servers=N", "--json", or "--wait[=DURATION]" if the value may be left out.
std::string FlagText(const CLI::Option& flag) {
  // Words that follow the flags (AddProgram).
  if (flag.get_lnames().empty()) return absl::StrCat("-- ", flag.get_single_name());
  const std::string name = absl::StrCat("--", flag.get_lnames().front());
  if (!TakesNoValue(flag)) return absl::StrCat(name, "=", flag.get_type_name());
  return flag.get_fnames().empty() ? name : absl::StrCat(name, "[=", flag.get_type_name(), "]");
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kCommandColumns); }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    if (app->get_parent() == nullptr) {
      return absl::StrCat("Usage: ", name, " COMMAND [FLAGS]\n",
                          make_subcommands(app, CLI::AppFormatMode::Normal), "\n", name,
                          " COMMAND --help describes one command, ", name,
                          " --version prints the version.\n");
    }
    std::string word;
    std::string rest;
    std::string flags;
    for (const CLI::Option* const flag : app->get_options()) {
      if (flag == app->get_help_ptr()) continue;
      if (flag->get_lnames().empty()) {
        rest = absl::StrCat(" [-- ", flag->get_single_name(), "]");
      } else if (flag->get_positional()) {
        word = absl::StrCat(" ", flag->get_type_name());
      }
      absl::StrAppend(&flags, make_option(flag, false));
    }
    return absl::StrCat("Usage: ", name, word, " [FLAGS]", rest, "\n\n", app->get_footer(),
                        "\n\nFlags:\n", flags);
  }

  std::string make_option(const CLI::Option* flag, bool) const override {
    std::string text = absl::StrCat("  ", FlagText(*flag), "\n");
    for (const absl::string_view line : absl::StrSplit(flag->get_description(), '\n'))
      absl::StrAppend(&text, "      ", line, "\n");
    return text;
  }
};

std::string FlagList(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const flag : command.get_options()) {
    if (flag != command.get_help_ptr() && !flag->get_lnames().empty())
      names.push_back(flag->get_lnames().front());
  }
  return absl::StrCat(command.get_name(), " takes --", absl::StrJoin(names, ", --"));
}

template <typename Integer>
absl::Status ParseInteger(absl::string_view text, Integer& value) {
  if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a whole number from ",
                                                 std::numeric_limits<Integer>::min(), " to ",
                                                 std::numeric_limits<Integer>::max()));
}

int UsageError(absl::string_view message) {
  std::cerr << "pawlctl: " << message << "\n";
  return kExitUsage;
}

}  // namespace

CommandLine::CommandLine(const std::string& program, const std::string& version)
    : app_(std::make_unique<CLI::App>("", program)) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_version_flag("--version", absl::StrCat(program, " ", version));
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

CLI::App& CommandLine::AddCommand(const std::string& name, const std::string& summary,
                                  const std::string& help, std::function<int()> run,
                                  absl::string_view exit_codes) {
  CLI::App& command = *app_->add_subcommand(name, summary);
  command.group(kCommands);
  command.footer(absl::StrCat(help, "\n\n", exit_codes));
  run_[&command] = std::move(run);
  return command;
}

int CommandLine::Run(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    std::cerr << app_->help();
    return kExitUsage;
  }
  if (arguments[0] == "help" || arguments[0] == "version") arguments[0].insert(0, "--");
  const auto is_command = [&](const std::string& word) {
    return std::any_of(run_.begin(), run_.end(),
                       [&](const auto& entry) { return entry.first->get_name() == word; });
  };
  if (absl::StartsWith(arguments[0], "-") && arguments[0] != "--version") {
    // Flags may come before the command.
    const auto command = std::find_if(arguments.begin(), arguments.end(), is_command);
    if (command != arguments.end()) std::rotate(arguments.begin(), command, command + 1);
  }
  if (!absl::StartsWith(arguments[0], "-") && !is_command(arguments[0])) {
    return UsageError(absl::StrCat("there is no command '", arguments[0], "'; ", app_->get_name(),
                                   " --help lists them"));
  }
  // CLI11 would split words in brackets at their commas.
  std::vector<std::string> program_words;
  const auto program = std::find_if(programs_.begin(), programs_.end(), [&](const auto& entry) {
    return entry.first->get_name() == arguments[0];
  });
  if (program != programs_.end()) {
    const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
    if (dashes != arguments.end()) program_words.assign(dashes + 1, arguments.end());
    arguments.erase(dashes, arguments.end());
  }
  // CLI11 wants the last argument first. It takes "--name=" without a value for "--name".
  std::vector<std::string> reversed;
  for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) {
    const bool is_empty_value = absl::StartsWith(*it, "--") && it->find('=') == it->size() - 1;
    if (is_empty_value) reversed.emplace_back();
    reversed.push_back(is_empty_value ? it->substr(0, it->size() - 1) : *it);
  }
  try {
    app_->parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return OnParseError(error);
  }
  if (program != programs_.end())
    program->second->insert(program->second->end(), program_words.begin(), program_words.end());
  const CLI::App* const command = app_->get_subcommands().front();
  const int code = run_.at(command)();
  if (code == kExitDone && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    std::cerr << "pawlctl: the output could not be written\n";
    if (!print_progress_.contains(command)) return kExitFailed;
  }
  return code;
}

void CommandLine::AddProgram(CLI::App& command, const std::string& placeholder,
                             std::vector<std::string>& words, const std::string& help) {
  command.add_option(placeholder, words, help)->type_name("");
  programs_[&command] = &words;
}

int CommandLine::OnParseError(const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app_->get_subcommands();
  const CLI::App& command = chosen.empty() ? *app_ : *chosen.front();
  // A request for help wins over mistakes.
  if (command.get_help_ptr()->count() > 0) {
    std::cout << app_->help();
    return kExitDone;
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    std::cout << error.what() << "\n";
    return kExitDone;
  }
  std::string message = error.what();
  if (const std::vector<std::string> unknown = command.remaining(); !unknown.empty()) {
    message = absl::StartsWith(unknown.front(), "--")
                  ? absl::StrCat(command.get_name(), " has no flag ", unknown.front())
                  : absl::StrCat("'", unknown.front(), "' is not a flag");
    if (!chosen.empty()) absl::StrAppend(&message, "; ", FlagList(command));
  } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
    for (const CLI::Option* const flag : command.get_options()) {
      if (flag->get_required() && flag->count() == 0) {
        message = absl::StrCat(FlagText(*flag), " is missing: ", flag->get_description());
        break;
      }
    }
  }
  return UsageError(absl::StrCat(message, " (", app_->get_name(), " ",
                                 chosen.empty() ? "" : absl::StrCat(command.get_name(), " "),
                                 "--help)"));
}

void SetCheck(CLI::App& command, std::function<absl::Status()> check) {
  command.callback([check = std::move(check)] {
    if (const absl::Status status = check(); !status.ok())
      throw CLI::ConversionError(std::string(status.message()));
  });
}

absl::Status ParseFlagText(absl::string_view text, std::string& value) {
  value = std::string(text);
  return absl::OkStatus();
}

absl::Status ParseFlagText(absl::string_view text, int32_t& value) {
  return ParseInteger(text, value);
}

absl::Status ParseFlagText(absl::string_view text, uint32_t& value) {
  return ParseInteger(text, value);
}

absl::Status ParseFlagText(absl::string_view text, uint64_t& value) {
  return ParseInteger(text, value);
}

absl::Status ParseFlagText(absl::string_view text, float& value) {
  if (absl::SimpleAtof(text, &value) && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a finite number"));
}

absl::Status ParseFlagText(absl::string_view text, MonotonicDuration& value) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration) || duration <= absl::ZeroDuration() ||
      duration > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        "a duration is more than 0 and at most 24h, such as 500ms or 10s");
  }
  value = std::chrono::duration_cast<MonotonicDuration>(absl::ToChronoNanoseconds(duration));
  return absl::OkStatus();
}

CLI::Option* AddParsedFlag(CLI::App& command, const std::string& name,
                           const std::string& placeholder, FlagParser parse,
                           const std::string& help, const FlagTraits& traits) {
  const std::function<void(const std::string&)> set = [flag = name.substr(name.find("--")),
                                                       placeholder, parse = std::move(parse), help,
                                                       traits](const std::string& given) {
    // CLI11 counts "--name=" as given: it neither reads the environment nor calls it missing.
    const bool has_environment = !traits.environment.empty();
    const char* const fallback =
        given.empty() && has_environment ? std::getenv(traits.environment.c_str()) : nullptr;
    const std::string text = fallback != nullptr ? fallback : given;
    if (text.empty() && traits.required)
      throw CLI::ConversionError(absl::StrCat(flag, "=", placeholder, " is missing: ", help));
    if (text.empty() && has_environment) return;
    // Not CLI11's needs(), which accepts "--switch=false".
    if (traits.needs != nullptr && !(traits.needs->count() > 0 && traits.needs->as<bool>()))
      throw CLI::ConversionError(absl::StrCat(flag, " requires ", traits.needs->get_name()));
    if (const absl::Status status = parse(text); !status.ok()) {
      throw CLI::ConversionError(
          absl::StrCat(flag, "=", text, " is not possible: ", status.message()));
    }
  };
  CLI::Option* const flag = command.add_option_function<std::string>(name, set, help);
  if (!traits.environment.empty()) flag->envname(traits.environment);
  return flag->type_name(placeholder)->take_last()->required(traits.required);
}

CLI::Option* AddSwitch(CLI::App& command, const std::string& name, bool& value,
                       const std::string& help) {
  return command.add_flag(name, value, help)->take_last();
}

void AddBareFlag(CLI::App& command, const std::string& name, const std::string& placeholder,
                 const std::string& bare_value, std::optional<MonotonicDuration>& value,
                 const std::string& help) {
  const auto text = std::make_shared<std::string>();
  command.add_flag(absl::StrCat(name, "{", bare_value, "}"), *text, help)
      ->each([name, text, &value](const std::string& given) {
        if (const absl::Status status = ParseFlagText(given, value); !status.ok()) {
          throw CLI::ConversionError(
              absl::StrCat(name, "=", given, " is not possible: ", status.message()));
        }
      })
      ->type_name(placeholder)
      ->take_last();
}

void AddRepeatedFlag(CLI::App& command, const std::string& name, const std::string& placeholder,
                     std::vector<std::string>& values, const std::string& help) {
  command.add_option(name, values, help)->allow_extra_args(false)->type_name(placeholder);
}

}  // namespace pawl
