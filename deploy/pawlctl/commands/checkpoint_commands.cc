#include "deploy/pawlctl/commands/checkpoint_commands.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

// To tell a checkpoint that takes long from a scheduler that is away.
constexpr std::chrono::seconds kProbeTimeout{5};

// 0 and the checkpoint; else the error is on stderr.
int MakeCheckpoint(const ConnectionOptions& options, const std::string& dir, MonotonicDuration wait,
                   CheckpointResponse& made) {
  const std::string absolute =
      dir.empty() ? "" : std::filesystem::absolute(dir).lexically_normal().string();
  absl::StatusOr<CheckpointResponse> answer =
      SchedulerConnection(options.scheduler).Checkpoint(absolute, wait);
  if (answer.ok()) {
    made = *std::move(answer);
    return kExitDone;
  }
  Console console;
  const bool answers = absl::IsDeadlineExceeded(answer.status()) &&
                       SchedulerConnection(options.scheduler).GetStatus(kProbeTimeout).ok();
  if (!answers) {
    console.Error(answer.status().message());
    return ExitCodeOf(answer.status());
  }
  console.Error(absl::StrCat(
      "there was no complete checkpoint within --wait=", Seconds(wait),
      "s; one that is being written goes on (pawlctl status shows it), one that was not begun is "
      "withdrawn. Is somebody training, and is the disk quick enough?"));
  return kExitFailed;
}

nlohmann::ordered_json JsonOf(const CheckpointResponse& made) {
  return {{"folder", made.folder()}, {"step", made.step()}};
}

std::string TextOf(const CheckpointResponse& made) {
  return absl::StrCat("checkpoint of step ", FormatCount(made.step()), " in ", made.folder());
}

}  // namespace

int CheckpointCommand(const ConnectionOptions& options, const std::string& dir) {
  CheckpointResponse made;
  if (const int code = MakeCheckpoint(options, dir, options.timeout, made); code != kExitDone)
    return code;
  Console().Line(options.json ? JsonOf(made).dump(2) : TextOf(made));
  return kExitDone;
}

int StopWithCheckpointCommand(const ConnectionOptions& options, const std::string& dir,
                              MonotonicDuration wait, const std::string& reason) {
  Console console;
  CheckpointResponse made;
  if (const int code = MakeCheckpoint(options, dir, wait, made); code != kExitDone) {
    console.Error("the job was not stopped");
    return code;
  }
  if (!options.json) {
    console.Line(TextOf(made));
    return StopCommand(options, reason);
  }
  const absl::Status stopped =
      SchedulerConnection(options.scheduler).StopJob(reason, options.timeout);
  if (!stopped.ok()) console.Error(stopped.message());
  console.Line(
      nlohmann::ordered_json({{"checkpoint", JsonOf(made)}, {"stopped", stopped.ok()}}).dump(2));
  return ExitCodeOf(stopped);
}

int ListCheckpointsCommand(const std::string& dir, bool json) {
  Console console;
  if (const absl::StatusOr<std::vector<std::string>> there = Env::Real().List(dir); !there.ok()) {
    console.Error(absl::StrCat("--dir=", dir, " cannot be read: ", there.status().message()));
    return kExitFailed;
  }
  const CheckpointStore store(Env::Real(), dir);
  const absl::StatusOr<CheckpointListing> listing = store.List("");
  if (!listing.ok()) {
    console.Error(listing.status().message());
    return ExitCodeOf(listing.status());
  }
  std::vector<std::vector<std::string>> rows = {
      {"CHECKPOINT", "STEP", "PARTITIONS", "BYTES", "STATE"}};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool all_whole = listing->damaged.empty();
  for (const CheckpointListing::Entry& entry : listing->complete) {
    uint64_t bytes = 0;
    for (const CheckpointPart& part : entry.manifest.parts()) bytes += part.bytes();
    const absl::Status whole = store.Verify(entry.name);
    all_whole = all_whole && whole.ok();
    rows.push_back({entry.name, FormatCount(entry.manifest.step()),
                    FormatCount(entry.manifest.parts_size()), FormatCount(bytes),
                    whole.ok() ? "whole" : "damaged"});
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
    console.Line(all.dump(2));
  } else if (rows.size() == 1) {
    console.Line(absl::StrCat("no complete checkpoint in ", dir));
  } else {
    const std::string table = FormatTable(rows);
    console.Line(table.substr(0, table.size() - 1));
  }
  return all_whole ? kExitDone : kExitFailed;
}

}  // namespace pawl
