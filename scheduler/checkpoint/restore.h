// Finds the checkpoint that a job starts from.
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

// The checkpoint at `path`: a checkpoint's own folder, or a folder of checkpoints, whose newest one
// of the job `job_name` is used. Reads and verifies all of it. NOT_FOUND; FAILED_PRECONDITION: it
// was renamed; DATA_LOSS: it is damaged, naming the file, the offset and the newest intact
// checkpoint before it.
absl::StatusOr<FoundCheckpoint> FindCheckpoint(Env& env, const std::string& path,
                                               const std::string& job_name,
                                               VerifyProgress* progress = nullptr);

// Whether `job`, with its defaults filled in, can continue from the manifest's job: everything that
// the parameters and the data position depend on is the same, and evaluations have the same
// numbers. INVALID_ARGUMENT names the field, both values and the remedy. Epochs, early stopping,
// durability, replicas, paths and the checkpoint policy may differ; with evaluation.only also what
// only the training depends on.
absl::Status CheckFits(const Job& job, const CheckpointManifest& manifest);

// The record of `found` that the scheduler stores. The folder has its path in `job` if it is the
// same folder.
StoredRestore MakeStoredRestore(const FoundCheckpoint& found, const Job& job);

// A warning for the operator who restores `found`; empty: none.
std::string RestoreWarning(Env& env, const FoundCheckpoint& found);

// Renames to NAME.aside those checkpoints in the job's own folder that are later than `restore` and
// not of the run `job_id` itself: they belong to an abandoned run, and the job makes its own
// checkpoints of those steps. The same for another checkpoint of the same position. Returns the
// names.
absl::StatusOr<std::vector<std::string>> SetAsideLaterCheckpoints(Env& env, const Job& job,
                                                                  uint64_t job_id,
                                                                  const StoredRestore& restore);

// Whether FindCheckpoint of `path` gave the checkpoint that a job was restored from. Symbolic links
// count as the same path.
bool IsSource(const std::string& path, const StoredRestore& restore);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_CHECKPOINT_RESTORE_H_
