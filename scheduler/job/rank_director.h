// Decides which workers host the job's ranks as workers join, leave and give up ranks.
#ifndef PAWL_SCHEDULER_JOB_RANK_DIRECTOR_H_
#define PAWL_SCHEDULER_JOB_RANK_DIRECTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/membership/logical_workers.h"
#include "scheduler/membership/membership.h"
#include "scheduler/membership/worker_group.h"

namespace pawl {

// Passes the events of workers to LogicalWorkers, which places the ranks, and computes the
// assignments for workers, the group and the status. Time is passed in. Not thread-safe.
class RankDirector {
 public:
  using FreeRank = LogicalWorkers::FreeRank;
  struct Options {
    LogicalWorkers::Options ranks;
    // The job only serves tables: it runs without workers, and those that leave need no successor.
    bool serve_only = false;
    // The job fails if a rank that needs a host has none for longer.
    MonotonicDuration return_timeout = std::chrono::seconds(60);
  };
  explicit RankDirector(const Options& options);

  const LogicalWorkers& ranks() const { return ranks_; }
  // For what concerns the ranks alone: MarkReady, Drain, MarkTold, Finish, Rebalance and Restore.
  LogicalWorkers& ranks() { return ranks_; }

  // `former_name`: the name of a worker that returns, else empty. See
  // LogicalWorkers::CheckRequestedRanks.
  absl::Status CheckJoin(const RegisterRequest& request, const std::string& former_name) const;

  // Events. After each of them, and of those of ranks(), Place may have something to do.
  // REQUIRES: CheckJoin is OK.
  void OnWorkerJoined(const RegisterRequest& request, const Node& worker);
  // `how` describes how it left. Returns its unfinished ranks, which have no host now.
  std::vector<FreeRank> OnWorkerGone(const Node& worker, const std::string& how, bool dead,
                                     MonotonicTime now);
  // Returns the ranks among `ranks` that the worker hosted; they have no host now.
  std::vector<FreeRank> GiveUp(const Node& worker, const std::vector<FreeRank>& ranks,
                               MonotonicTime now);
  void NoteProgress(const WorkerProgress& progress);
  // The number of workers that must join before ranks are first assigned.
  void SetWantedWorkers(uint32_t workers);

  // Assigns free ranks. Returns the workers whose assignments have changed.
  std::vector<std::string> Place(MonotonicTime now,
                                 const std::function<uint64_t()>& next_incarnation);
  // The error that the job fails with: a rank had no host, or no progress, for too long.
  std::optional<std::string> CheckReturn(MonotonicTime now) const;

  // Whether there are enough hosts for the job to run.
  bool CanStart() const { return options_.serve_only || ranks_.AllHosted(); }
  // Whether any rank has a host.
  bool AnyHosted() const;
  // Those of `ranks` that are still to be released, in the same incarnation.
  std::vector<FreeRank> StillToRelease(const std::vector<FreeRank>& ranks) const;
  // The worker's assignment; nullopt while undecided. `restored_step`: of the checkpoint that the
  // job started from.
  std::optional<GetAssignmentResponse> AssignmentOf(const std::string& worker,
                                                    std::optional<uint64_t> restored_step) const;
  WorkerGroup::Hosts Hosts() const;
  // Adds the ranks' samples, and sets the number of steps that all of them have done.
  void AddProgress(const Membership& membership, GetStatusResponse& status) const;

 private:
  const Options options_;
  LogicalWorkers ranks_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_RANK_DIRECTOR_H_
