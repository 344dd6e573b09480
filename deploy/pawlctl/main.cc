// pawlctl: runs jobs on this machine, and asks and controls running ones.
//
//   pawlctl run --job=deploy/jobs/flights-deepfm.pbtxt --servers=2 --workers=2
//   pawlctl status --scheduler=10.0.0.1:7000
//
// `pawlctl --help` lists the commands, `pawlctl COMMAND --help` describes one.
#include <string>
#include <vector>

#include "client_lib/rpc/version.h"
#include "deploy/pawlctl/cluster/evaluate_command.h"
#include "deploy/pawlctl/cluster/run_command.h"
#include "deploy/pawlctl/command_line.h"
#include "deploy/pawlctl/commands/checkpoint_commands.h"
#include "deploy/pawlctl/commands/export_command.h"
#include "deploy/pawlctl/commands/scale_commands.h"
#include "deploy/pawlctl/commands/status_commands.h"
#include "deploy/pawlctl/commands/table_commands.h"
#include "deploy/pawlctl/commands/token_command.h"
#include "deploy/pawlctl/commands/verify_command.h"
#include "deploy/pawlctl/commands/watch_command.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

int main(int argc, char** argv) {
  // gRPC's errors, such as a refused certificate. stdout is for results.
  spdlog::set_default_logger(spdlog::stderr_color_mt("pawlctl"));
  spdlog::set_pattern("pawlctl: %v");
  pawl::CommandLine line("pawlctl", std::string(pawl::kVersion));
  pawl::AddRunCommands(line);
  pawl::AddEvaluateCommand(line);
  pawl::AddStatusCommands(line);
  pawl::AddWatchCommand(line);
  pawl::AddScaleCommands(line);
  pawl::AddCheckpointCommands(line);
  pawl::AddExportCommand(line);
  pawl::AddVerifyCommand(line);
  pawl::AddTableCommands(line);
  pawl::AddTokenCommand(line);
  return line.Run(std::vector<std::string>(argv + 1, argv + argc));
}
