// What a Coordinator is told, and its limits in time.
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
// ran out.
inline constexpr std::chrono::milliseconds kTickInterval{50};
// How long servers may take, all together, with retries, once all partitions have a primary. What
// only took too long is asked anew, with a line in the log.
inline constexpr std::chrono::seconds kCreateTableTimeout{60};
inline constexpr std::chrono::seconds kReleaseTimeout{60};
// The same for what reads every parameter, with as much time besides as one server that had all of
// them would need at the rate below: after a failover one may have those of others too, and what a
// server last said that it has may be old. No server should be so slow, though it looks up every
// key.
inline constexpr std::chrono::seconds kKeepBestTimeout{60};
inline constexpr std::chrono::seconds kInspectTimeout{300};
inline constexpr uint64_t kLeastBytesPerSecondRead = 50'000'000;
// Until the step is reached, all of it is written, and anybody who was away is back.
inline constexpr std::chrono::seconds kCheckpointTimeout{3600};
inline constexpr std::chrono::seconds kLoadTimeout{3600};
// Of one question of these: a server that does not answer is asked again, and must not take it for
// given up.
inline constexpr std::chrono::seconds kCheckpointCallTimeout{30};
// Figures of the nodes, which change all the time, are saved so often.
inline constexpr std::chrono::seconds kFiguresSaveInterval{10};
// What is kept to call servers that have gone goes so often.
inline constexpr std::chrono::seconds kPruneInterval{10};
// The placement is looked at so often though nothing has happened: partitions may have become hot.
inline constexpr std::chrono::seconds kReplanInterval{1};
// A server that misses so many heartbeats may be replaced by its next incarnation: two, and some
// time for the third.
inline constexpr double kHeartbeatsOfSilence = 2.5;
// A pause of less is none: the owner's thread may come late.
inline constexpr std::chrono::milliseconds kShortestPause{200};

struct CoordinatorOptions {
  // Valid, with its defaults filled in.
  Job job;
  uint64_t job_id = 0;
  // Servers and workers that the job begins with; others may come. REQUIRES: job.replicas <=
  // servers.
  uint32_t servers = 1;
  uint32_t workers = 0;
  std::chrono::milliseconds heartbeat_interval{200};
  // A node that was silent for longer is dead. Several intervals, so that one lost heartbeat is
  // none.
  std::chrono::milliseconds lease{1000};
  // After a restart nobody is dead before this and a lease have passed. Nodes try once a second to
  // reach a scheduler that is away.
  std::chrono::milliseconds restart_grace{2000};
  // A server that adopts none of the newer routings for so long, though it sends heartbeats, is
  // treated as gone. Longer than it takes to ask again for a routing whose answer was lost.
  std::chrono::milliseconds adoption_timeout{30000};
  // The job fails if its first nodes are not there by then.
  std::chrono::milliseconds start_timeout{300000};
  // The ranks of a worker that has died are kept for it so long, so that whoever starts it again
  // comes first; then others that live take them over.
  std::chrono::milliseconds worker_takeover_grace{1000};
  // The job fails if nobody takes over the ranks of a worker that has gone for so long.
  std::chrono::milliseconds worker_return_timeout{60000};
  // The job fails if a partition is without its last holder for so long.
  std::chrono::milliseconds recovery_timeout{60000};
  // Called at the job's end, outside the lock. An error fails a job that would have completed, and
  // it is called once more, with that. May be null.
  std::function<absl::Status(const JobReport&)> write_report;
  // Completes a checkpoint in `dir` of which all parts are there, deletes old ones if `keep` is not
  // 0, and then calls `done` with its own folder, on any thread. Called outside the lock; must not
  // block. Null: there are no checkpoints.
  std::function<void(const std::string& dir, CheckpointManifest manifest, uint32_t keep,
                     absl::AnyInvocable<void(absl::StatusOr<std::string>)> done)>
      write_checkpoint;
  // The checkpoint to begin with, which is whole and fits the job, and what its manifest has as
  // scheduler_state. Not looked at if the job goes on from a saved state.
  std::optional<StoredRestore> restore;
  SchedulerState restore_state;
  // Called under the lock whenever there is something to save, with TakeUnsaved and StateIsSaved;
  // must not call back or block. Null: nothing is ever saved.
  std::function<void()> state_changed;
  // False once another scheduler may direct the job: no lease is renewed then. Called under the
  // lock; null: true.
  std::function<bool()> leads;
  // The wall clock, only for how long the training took over restarts. Null: that counts anew with
  // each.
  std::function<uint64_t()> unix_ms;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_COORDINATOR_OPTIONS_H_
