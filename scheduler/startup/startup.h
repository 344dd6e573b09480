// What a scheduler begins with: the state of its job, a checkpoint, or nothing.
#ifndef PAWL_SCHEDULER_STARTUP_STARTUP_H_
#define PAWL_SCHEDULER_STARTUP_STARTUP_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/job/coordinator_options.h"
#include "scheduler/store/state_store.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// What the operator says of it.
struct Startup {
  // The flags of these names; `job` and `place` are for messages, `place` is where the state is
  // stored.
  std::string job;
  std::string place;
  std::string restore = {};
  bool begin_anew = false;
};

// The state to go on with, if there is one. That of a job whose end everybody knows (closed) is one
// only if it is the very job of `options`: then there is nothing to do. FAILED_PRECONDITION: it is
// that of another job, which has not ended.
absl::StatusOr<std::optional<SchedulerState>> StateOfThisJob(
    const std::optional<StoredState>& stored, const CoordinatorOptions& options,
    const Startup& startup);

// For a job that begins now: sees to it that its checkpoints do not get mixed up with those of
// others; with startup.restore it is to begin with one of them, which is in `options` then. The
// error says which flag or field to change. Reads all of the checkpoint: `progress`, which may be
// null, says how far that is.
absl::Status PrepareCheckpoints(Env& env, const Startup& startup, CoordinatorOptions& options,
                                VerifyProgress* progress = nullptr);

// SetLaterAside (scheduler/checkpoint/restore.h), with a line in the log for each. Not to be called
// before the start has succeeded, for after it the newest checkpoint is another one.
absl::Status SetLaterCheckpointsAside(Env& env, const Job& job, uint64_t job_id,
                                      const StoredRestore& restore);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STARTUP_STARTUP_H_
