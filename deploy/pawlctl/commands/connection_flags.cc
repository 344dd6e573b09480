#include "deploy/pawlctl/commands/connection_flags.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pawl {

void AddJsonFlag(CLI::App& command, bool& json) {
  AddSwitch(command, "--json", json, "Print JSON for programs instead of text for people.");
}

void AddSchedulerFlags(CLI::App& command, ConnectionOptions& options) {
  AddFlag(command, "--scheduler", "HOST:PORT", options.scheduler,
          "The address of the job's scheduler; default: the environment's PAWL_SCHEDULER. pawlctl\n"
          "run writes it to scheduler.addr in its --out.",
          {.required = true, .environment = "PAWL_SCHEDULER"});
  // Not while the flag is parsed: CLI11 reads the environment for all commands.
  SetCheck(command, [&options] {
    if (absl::StrContains(options.scheduler, ':')) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--scheduler=", options.scheduler, " has no port: HOST:PORT is needed"));
  });
  AddJsonFlag(command, options.json);
}

void AddConnectionFlags(CLI::App& command, ConnectionOptions& options) {
  AddSchedulerFlags(command, options);
  AddFlag(command, "--timeout", "DURATION", options.timeout,
          "How long to wait for the answer; default: 5s.");
}

}  // namespace pawl
