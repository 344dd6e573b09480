// Decides what a scheduler starts from: the stored state of its job, a checkpoint, or nothing.
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

// The operator's choices.
struct Startup {
  // `job`, `restore` and `restart_ended_job` are the flags of these names. `place` is where the
  // state is stored; `job` and `place` are used in messages only.
  std::string job;
  std::string place;
  std::string restore = {};
  bool restart_ended_job = false;
};

// The stored state to resume, if any. A closed job, whose end all nodes know, is resumed only if it
// is the job of `options`; the scheduler then exits at once. FAILED_PRECONDITION: the stored state
// is of another job that is not closed.
absl::StatusOr<std::optional<SchedulerState>> StateToResume(
    const std::optional<StoredState>& stored, const CoordinatorOptions& options,
    const Startup& startup);

// Whether this scheduler stands by for the job in the state of the one that leads, and so ends with
// it. False: there is no state yet, or that job has ended, so that another one may follow. The
// error is that of StateToResume.
absl::StatusOr<bool> StandsByFor(const std::optional<StoredState>& stored,
                                 const CoordinatorOptions& options, const Startup& startup);

// A warning for the operator whose --restore or --restart_ended_job is ignored, because the state
// that is resumed is of a job that has ended and is not closed; empty: none.
std::string ResumeWarning(const SchedulerState& state, const Startup& startup);

// Prepares the checkpoints of a new job: refuses a folder with checkpoints of an earlier run, and
// with startup.restore loads the checkpoint to start from into `options`. The error names the flag
// or field to change. Reads the whole checkpoint and reports to `progress`, which may be null.
absl::Status PrepareCheckpoints(Env& env, const Startup& startup, CoordinatorOptions& options,
                                VerifyProgress* progress = nullptr);

// Calls SetAsideLaterCheckpoints (scheduler/checkpoint/restore.h) and logs each checkpoint that was
// set aside. To be called only after a successful start, because it changes which checkpoint is the
// newest.
absl::Status SetAsideAndLogLaterCheckpoints(Env& env, const Job& job, uint64_t job_id,
                                            const StoredRestore& restore);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STARTUP_STARTUP_H_
