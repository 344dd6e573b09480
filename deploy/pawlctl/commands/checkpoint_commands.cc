#include "deploy/pawlctl/commands/checkpoint_commands.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

// Tells a slow checkpoint from an unreachable scheduler.
constexpr std::chrono::seconds kProbeTimeout{5};
constexpr std::chrono::minutes kDefaultWait{10};

// Sets `made` and returns kExitDone, or prints the error.
int RequestCheckpoint(const ConnectionOptions& options, const std::string& dir,
                      MonotonicDuration wait, CheckpointResponse& made) {
  const std::string absolute =
      dir.empty() ? "" : std::filesystem::absolute(dir).lexically_normal().string();
  absl::StatusOr<CheckpointResponse> answer =
      SchedulerConnection(options.scheduler, *options.security).Checkpoint(absolute, wait);
  if (answer.ok()) {
    made = *std::move(answer);
    return kExitDone;
  }
  const bool answers =
      absl::IsDeadlineExceeded(answer.status()) &&
      SchedulerConnection(options.scheduler, *options.security).GetStatus(kProbeTimeout).ok();
  if (!answers) return ReportError(answer.status());
  Console().Error(absl::StrCat(
      "no checkpoint was complete within --wait=", Seconds(wait),
      "s; one that is being written continues (pawlctl status shows it), one that was not started "
      "is withdrawn. Is the job training, and is the disk fast enough?"));
  return kExitFailed;
}

nlohmann::ordered_json JsonOf(const CheckpointResponse& made) {
  return {{"folder", made.folder()}, {"step", made.step()}};
}

std::string TextOf(const CheckpointResponse& made) {
  return absl::StrCat("checkpoint of step ", FormatCount(made.step()), " in ", made.folder());
}

struct StopOptions {
  ConnectionOptions connection;
  std::string reason = "stopped by pawlctl stop";
  bool with_checkpoint = false;
  std::string dir;
  MonotonicDuration wait = kDefaultWait;
};

int Stop(const StopOptions& options) {
  const ConnectionOptions& connection = options.connection;
  Console console;
  std::optional<CheckpointResponse> made;
  if (options.with_checkpoint) {
    const int code = RequestCheckpoint(connection, options.dir, options.wait, made.emplace());
    if (code != kExitDone) {
      console.Error("the job was not stopped");
      return code;
    }
    if (!connection.json) console.Line(TextOf(*made));
  }
  const absl::Status stopped = SchedulerConnection(connection.scheduler, *connection.security)
                                   .StopJob(options.reason, connection.timeout);
  if (!stopped.ok()) console.Error(stopped.message());
  if (connection.json && (stopped.ok() || made.has_value())) {
    nlohmann::ordered_json answer = nlohmann::ordered_json::object();
    if (made.has_value()) answer["checkpoint"] = JsonOf(*made);
    answer["stopped"] = stopped.ok();
    console.Line(answer.dump(2));
  } else if (stopped.ok()) {
    console.Line("the job is stopping");
  }
  return ExitCodeOf(stopped);
}

void AddCheckpointCommand(CommandLine& line) {
  struct Options {
    ConnectionOptions connection = {.scheduler = "", .timeout = kDefaultWait};
    std::string dir;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = line.AddCommand(
      "checkpoint", "make a checkpoint of a running job",
      "Waits until a checkpoint is complete and prints its folder. Training continues meanwhile.\n"
      "Ctrl-C, or the end of --wait, withdraws the request unless the checkpoint has started.\n"
      "\n"
      "  pawlctl checkpoint --scheduler=10.0.0.1:7000 --dir=/shared/checkpoints",
      [options] { return MakeCheckpoint(options->connection, options->dir); });
  AddFlag(command, "--dir", "FOLDER", options->dir,
          "A folder of checkpoints, which the scheduler and all servers see under this path;\n"
          "default: the job's checkpoint.dir.");
  AddFlag(command, "--wait", "DURATION", options->connection.timeout,
          "How long to wait for the checkpoint; default: 10m.");
  AddSchedulerFlags(command, options->connection);
}

void AddCheckpointsCommand(CommandLine& line) {
  struct Options {
    std::string dir;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = line.AddCommand(
      "checkpoints", "the checkpoints in a folder, and whether they are intact",
      "Reads and checks all of each. Exits with 1 if one is damaged or cannot be read.\n"
      "\n"
      "  pawlctl checkpoints --dir=/shared/checkpoints",
      [options] { return ListCheckpoints(options->dir, options->json); });
  AddFlag(command, "--dir", "FOLDER", options->dir, "A folder of checkpoints.", {.required = true});
  AddJsonFlag(command, options->json);
}

void AddStopCommand(CommandLine& line) {
  const auto options = std::make_shared<StopOptions>();
  CLI::App& command = line.AddCommand(
      "stop", "stop a running job",
      "Asks the scheduler to stop the job. All nodes are told and exit. The job's state is then\n"
      "STOPPED. A stopped job has no final checkpoint, even if it was stopped while FINISHING.\n\n"
      "--with_checkpoint makes a checkpoint first, as pawlctl checkpoint does. If none is\n"
      "complete within --wait, the job continues.\n\n"
      "  pawlctl stop --scheduler=10.0.0.1:7000 --reason=\"wrong learning rate\"\n"
      "  pawlctl stop --with_checkpoint",
      [options] { return Stop(*options); });
  AddConnectionFlags(command, options->connection);
  AddFlag(command, "--reason", "TEXT", options->reason,
          "The reason that the nodes log; default: \"stopped by pawlctl stop\".");
  CLI::Option* const with_checkpoint =
      AddSwitch(command, "--with_checkpoint", options->with_checkpoint, "Make a checkpoint first.");
  AddFlag(command, "--dir", "FOLDER", options->dir,
          "A folder of checkpoints; default: the job's checkpoint.dir.",
          {.needs = with_checkpoint});
  AddFlag(command, "--wait", "DURATION", options->wait,
          "How long to wait for the checkpoint; default: 10m.", {.needs = with_checkpoint});
}

}  // namespace

void AddCheckpointCommands(CommandLine& line) {
  AddCheckpointCommand(line);
  AddCheckpointsCommand(line);
  AddStopCommand(line);
}

int MakeCheckpoint(const ConnectionOptions& options, const std::string& dir) {
  CheckpointResponse made;
  if (const int code = RequestCheckpoint(options, dir, options.timeout, made); code != kExitDone)
    return code;
  Console().Line(options.json ? JsonOf(made).dump(2) : TextOf(made));
  return kExitDone;
}

int ListCheckpoints(const std::string& dir, bool json, Env& env) {
  Console console;
  if (const absl::StatusOr<std::vector<std::string>> files = env.List(dir); !files.ok()) {
    console.Error(absl::StrCat("--dir=", dir, " cannot be read: ", files.status().message()));
    return kExitFailed;
  }
  const CheckpointStore store(env, dir);
  const absl::StatusOr<CheckpointListing> listing = store.List("");
  if (!listing.ok()) return ReportError(listing.status());
  std::vector<std::vector<std::string>> rows = {
      {"CHECKPOINT", "STEP", "PARTITIONS", "BYTES", "STATE"}};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool all_whole = listing->damaged.empty();
  for (const CheckpointListing::Entry& entry : listing->complete) {
    uint64_t bytes = 0;
    for (const CheckpointPart& part : entry.manifest.parts()) bytes += part.bytes();
    const absl::Status whole = store.Verify(entry.name);
    // A running job deletes old checkpoints, the manifest first.
    if (!whole.ok() && absl::IsNotFound(store.ReadManifest(entry.name).status())) continue;
    all_whole = all_whole && whole.ok();
    rows.push_back({entry.name, FormatCount(entry.manifest.step()),
                    FormatCount(entry.manifest.parts_size()), FormatCount(bytes),
                    whole.ok()                ? "whole"
                    : absl::IsDataLoss(whole) ? "damaged"
                                              : "unreadable"});
    all.push_back({{"name", entry.name},
                   {"step", entry.manifest.step()},
                   {"partitions", entry.manifest.parts_size()},
                   {"bytes", bytes},
                   {"whole", whole.ok()},
                   {"damage", whole.ok() ? "" : std::string(whole.message())}});
    if (!whole.ok()) console.Error(whole.message());
  }
  for (const absl::Status& damaged : listing->damaged) console.Error(damaged.message());
  if (json) {
    console.Line(JsonText(all));
  } else if (rows.size() == 1) {
    console.Line(absl::StrCat("no complete checkpoint in ", dir));
  } else {
    console.Text(FormatTable(rows));
  }
  return all_whole ? kExitDone : kExitFailed;
}

}  // namespace pawl
