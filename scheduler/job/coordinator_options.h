// The settings of a Coordinator and its timeouts.
#ifndef PAWL_SCHEDULER_JOB_COORDINATOR_OPTIONS_H_
#define PAWL_SCHEDULER_JOB_COORDINATOR_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/status/metrics_file.h"

namespace pawl {

// How often the owner calls Coordinator::Tick: a death is noticed at most this long after the lease
// has expired.
inline constexpr std::chrono::milliseconds kTickInterval{50};
// The deadline of a round of calls to all servers, retries included, counted from when all
// partitions have a primary. A round that only timed out is logged and repeated.
inline constexpr std::chrono::seconds kCreateTableTimeout{60};
inline constexpr std::chrono::seconds kReleaseTimeout{60};
// The same for rounds that read every parameter. Their deadline grows with the size of the model,
// as if one server held all of it and read at the rate below: after a failover a server may hold
// partitions of others, and its last reported size may be old. The rate is lower than that of any
// server, even one that looks up every key.
// A server that cannot commit, because its disk is full or replicas are missing, gets as much time
// as a worker gives it for its pushes.
inline constexpr std::chrono::seconds kKeepBestTimeout{600};
inline constexpr std::chrono::seconds kInspectTimeout{300};
inline constexpr uint64_t kMinReadBytesPerSecond = 50'000'000;
// The same, for rounds that also wait until the step is reached and absent servers have returned.
inline constexpr std::chrono::seconds kCheckpointTimeout{3600};
// Servers read, rewrite and sync the whole model, whose size is not known yet.
inline constexpr std::chrono::hours kLoadTimeout{6};
// The deadline of one call of a checkpoint round. The scheduler repeats a call that was not
// answered, before the server considers the checkpoint abandoned.
inline constexpr std::chrono::seconds kCheckpointCallTimeout{30};
// How often the counters of nodes, which change continuously, are saved.
inline constexpr std::chrono::seconds kFiguresSaveInterval{10};
// How often connections to departed servers are dropped.
inline constexpr std::chrono::seconds kPruneInterval{10};
// How often the placement is reconsidered without an event: partitions may have become hot.
inline constexpr std::chrono::seconds kReplanInterval{1};
// The next incarnation of a server or worker may replace it after this many heartbeat intervals of
// silence: two missed heartbeats, and a tolerance for the third.
inline constexpr double kMaxMissedHeartbeats = 2.5;
// Shorter pauses of this process are not counted: the owner's thread may be late.
inline constexpr std::chrono::milliseconds kMinPause{200};

struct CoordinatorOptions {
  // Valid, with its defaults filled in.
  Job job;
  uint64_t job_id = 0;
  // The numbers of servers and workers at the start of the job; more may join later. REQUIRES:
  // job.replicas <= servers.
  uint32_t servers = 1;
  uint32_t workers = 0;
  std::chrono::milliseconds heartbeat_interval{200};
  // The scheduler declares a node dead after this much silence. Several heartbeat intervals, so
  // that one lost heartbeat does not matter.
  std::chrono::milliseconds lease{1000};
  // After a restart the scheduler declares no node dead until this time and one lease have passed:
  // nodes retry an absent scheduler once a second.
  std::chrono::milliseconds restart_grace{2000};
  // The scheduler treats a server as gone if it sends heartbeats but adopts no newer routing for
  // this long. Longer than the interval after which a server repeats a routing call without an
  // answer.
  std::chrono::milliseconds adoption_timeout{30000};
  // The job fails if its first nodes have not joined after this time.
  std::chrono::milliseconds start_timeout{300000};
  // How long the ranks of a dead worker are reserved for its restart before other workers take them
  // over.
  std::chrono::milliseconds worker_takeover_grace{1000};
  // The job fails if a rank has no host for this long after its worker has left or died.
  std::chrono::milliseconds worker_return_timeout{60000};
  // The job fails if a partition is unavailable for this long: no server with an in-sync replica is
  // present.
  std::chrono::milliseconds recovery_timeout{60000};
  // Called at the job's end, outside the lock. An error fails a job that would have completed; the
  // function is then called again with the failed job. May be null.
  std::function<absl::Status(const JobReport&)> write_report;
  // Completes a checkpoint in `dir` whose parts are all written, calls `done` with the checkpoint's
  // folder, on any thread, and deletes old ones if `keep` is not 0. Called outside the lock; must
  // not block. Null: no checkpoints are made.
  std::function<void(const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                     absl::AnyInvocable<void(absl::StatusOr<std::string>)> done)>
      write_checkpoint;
  // The checkpoint that a new job starts from, verified and matching the job, and the
  // scheduler_state of its manifest. Ignored if the job continues from a saved state.
  std::optional<StoredRestore> restore;
  SchedulerState restore_state;
  // Called under the lock after each change of the state; the owner then calls TakeUnsaved and
  // OnStateSaved. Must not call back or block. Null: nothing is saved.
  std::function<void()> state_changed;
  // Returns false once another scheduler may direct the job; this one then renews no lease. Called
  // under the lock. Null: always true.
  std::function<bool()> leads;
  // A server acts by a routing that this scheduler has not published, so its state is older than
  // what was announced: it was restored from a backup, or its newest part is lost. Whatever this
  // scheduler decided could lose acknowledged pushes, so the owner ends the process. Called under
  // the lock. Null: nothing happens.
  std::function<void(const std::string& why)> state_is_outdated;
  // Callers are authenticated, so pushes need tickets (client_lib/security/ticket.h).
  bool gives_tickets = false;
  // The scheduler's own, for GetStatus. May be null. Thread-safe.
  std::function<SecurityReport()> security;
  // The wall clock, only for the training time across restarts. Null: each restart counts from 0.
  std::function<uint64_t()> unix_ms;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_OPTIONS_H_
