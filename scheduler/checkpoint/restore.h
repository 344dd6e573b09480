// Finding the checkpoint that a job is to begin with.
#ifndef PAWL_SCHEDULER_CHECKPOINT_RESTORE_H_
#define PAWL_SCHEDULER_CHECKPOINT_RESTORE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler_state.pb.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

struct FoundCheckpoint {
  // Absolute, without a slash at its end.
  std::string dir;
  std::string name;
  CheckpointManifest manifest = {};
  SchedulerState state = {};
};

// The checkpoint at `path`: a checkpoint's own folder, or a folder of checkpoints, of which it is
// the newest one of the job called `job_name`. All of it is read and checked. NOT_FOUND;
// FAILED_PRECONDITION: it has not its own name; DATA_LOSS: it is damaged, naming the file, the
// offset and the newest one before it that is whole.
absl::StatusOr<FoundCheckpoint> FindCheckpoint(Env& env, const std::string& path,
                                               const std::string& job_name,
                                               VerifyProgress* progress = nullptr);

// Whether `job`, with its defaults filled in, can go on from a job as the manifest has it: what the
// parameters and the data position depend on is the same, and evaluations are numbered alike.
// INVALID_ARGUMENT names the field, both values and the way out. Epochs, early stopping,
// durability, replicas, paths and the checkpoints themselves may differ.
absl::Status CheckFits(const Job& job, const CheckpointManifest& manifest);

// What the scheduler keeps of `found`, with the folder under the name that it has in `job` if that
// is the same folder.
StoredRestore RestoreOf(const FoundCheckpoint& found, const Job& job);

// What somebody who goes on from `found` should know; empty: nothing.
std::string WarningOf(Env& env, const FoundCheckpoint& found);

// Renames what of the job's checkpoints in its own folder is after `restore`, and not of the run
// `job_id` itself, to NAME.aside: it is of a run that is given up, and the job makes others of
// those steps. So is one of the same place that is not the one it was restored from. Returns the
// names.
absl::StatusOr<std::vector<std::string>> SetLaterAside(Env& env, const Job& job, uint64_t job_id,
                                                       const StoredRestore& restore);

// Whether `path` is what a job was restored from, by FindCheckpoint, under whatever name.
bool IsSource(const std::string& path, const StoredRestore& restore);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_RESTORE_H_
