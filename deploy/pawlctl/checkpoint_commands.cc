#include "deploy/pawlctl/checkpoint_commands.h"

#include <chrono>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/progress.h"
#include "deploy/pawlctl/report.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"
#include "server/storage/checkpoint_store.h"

namespace pawl {
namespace {

// To tell a checkpoint that takes long from a scheduler that is away.
constexpr std::chrono::seconds kProbeTimeout{5};

}  // namespace

int CheckpointCommand(const ConnectionOptions& options, const std::string& dir) {
  Console console;
  const std::string absolute = dir.empty() ? "" : std::filesystem::absolute(dir).lexically_normal().string();
  const absl::StatusOr<CheckpointResponse> made =
      SchedulerConnection(options.scheduler).Checkpoint(absolute, options.timeout);
  if (!made.ok()) {
    const bool answers =
        absl::IsDeadlineExceeded(made.status()) && SchedulerConnection(options.scheduler).GetStatus(kProbeTimeout).ok();
    if (!answers) {
      console.Error(made.status().message());
      return ExitCodeOf(made.status());
    }
    console.Error(absl::StrCat("there was no complete checkpoint within --wait=", Seconds(options.timeout),
                               "s; one that is being written goes on (pawlctl status shows it), one that was not begun is "
                               "withdrawn. Is somebody training, and is the disk quick enough?"));
    return kExitFailed;
  }
  if (options.json) {
    console.Line(nlohmann::ordered_json({{"folder", made->folder()}, {"step", made->step()}}).dump(2));
  } else {
    console.Line(absl::StrCat("checkpoint of step ", FormatCount(made->step()), " in ", made->folder()));
  }
  return kExitDone;
}

int ListCheckpointsCommand(const std::string& dir, bool json) {
  Console console;
  const CheckpointStore store(Env::Real(), dir);
  const absl::StatusOr<CheckpointListing> listing = store.List("");
  if (!listing.ok()) {
    console.Error(listing.status().message());
    return ExitCodeOf(listing.status());
  }
  std::vector<std::vector<std::string>> rows = {{"CHECKPOINT", "STEP", "PARTITIONS", "BYTES", "STATE"}};
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool all_whole = listing->damaged.empty();
  for (const CheckpointListing::Entry& entry : listing->complete) {
    uint64_t bytes = 0;
    for (const CheckpointPart& part : entry.manifest.parts()) bytes += part.bytes();
    const absl::Status whole = store.Verify(entry.name);
    all_whole = all_whole && whole.ok();
    rows.push_back({entry.name, FormatCount(entry.manifest.step()), FormatCount(entry.manifest.parts_size()),
                    FormatCount(bytes), whole.ok() ? "whole" : "damaged"});
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
