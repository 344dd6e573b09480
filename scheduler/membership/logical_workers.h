// Assigns the ranks of the job to workers.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_LOGICAL_WORKERS_H_
#define PAWL_SCHEDULER_MEMBERSHIP_LOGICAL_WORKERS_H_

#include <algorithm>
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
#include "scheduler/membership/membership.h"
#include "scheduler/membership/worker_group.h"

namespace pawl {

// The job fails if this many workers in a row die as host of a rank without completing a step, and
// this takes longer than --worker_return_timeout_s.
// The count is not saved: after a restart of the scheduler it starts at 0.
inline constexpr uint32_t kMaxLossesWithoutAStep = 5;

struct FreeRank {
  uint32_t rank = 0;
  // The incarnation that the last host had.
  uint64_t incarnation = 0;
  bool operator==(const FreeRank&) const = default;
};

// Assigns the ranks 0 to total - 1. A worker either requests certain ranks and gets them at once,
// or accepts the ranks that it is assigned. A worker of the second kind may be a follower, which
// takes over and gives up ranks while it runs; the others keep the ranks that they get first.
//
// Once the wanted number of workers have joined, the free ranks are shared among the workers
// without requests. From then on the ranks of a worker that leaves are free. A free rank goes to
//  1. the same worker, if it returns, unless it died with the rank twice in a row without a step;
//  2. else to an idle follower, which gets all ranks of the worker that left;
//  3. else, after the grace period, or at once if the worker left on purpose, to the followers with
//     the fewest ranks (scheduler/membership/rank_placement.h).
//
// With `rebalance`, or when a follower is drained, ranks also move while they have a host: the host
// is told to give them up, and then others get them. Finished ranks stay with their last host. As
// long as any follower is ready, only ready followers take over ranks. Time is passed in. Not
// thread-safe.
//
// Invariants:
//  1. A rank has at most one host. Each change of host gives the rank a new incarnation.
//  2. A rank that its host must give up returns to the host's assignment only with a new
//     incarnation.
class LogicalWorkers {
 public:
  struct Options {
    uint32_t total = 0;
    // See SetWantedWorkers. 0: the first worker without requests gets all free ranks.
    uint32_t workers = 0;
    bool rebalance = false;
    MonotonicDuration takeover_grace = std::chrono::seconds(1);
    // The job only serves tables: it runs without workers, and those that leave need no successor.
    bool serve_only = false;
  };
  explicit LogicalWorkers(const Options& options)
      : options_(options),
        wanted_workers_(options.workers),
        rebalance_(options.rebalance),
        ranks_(options.total) {}

  // The number of workers, without draining ones, that must join before ranks are assigned: at
  // least 1, unless the job only serves. Not saved.
  void SetWantedWorkers(uint32_t workers) {
    wanted_workers_ = std::max(workers, options_.serve_only ? 0u : 1u);
  }
  // Whether the worker may join. `former_name`: the name of a worker that returns, else empty.
  // OUT_OF_RANGE for an impossible rank, INVALID_ARGUMENT for a rank named twice, ALREADY_EXISTS
  // for a rank that another worker hosts, RESOURCE_EXHAUSTED if the worker would never get a rank.
  absl::Status CheckJoin(const RegisterRequest& request, const std::string& former_name) const;
  // The worker's ranks have its incarnation unless it is a follower. REQUIRES: CheckJoin is OK, and
  // the worker has not joined, or has left.
  void Join(const RegisterRequest& request, const Node& worker);
  // The worker can start a rank at once. Returns whether it was not ready before.
  bool MarkReady(const std::string& worker);
  // The follower must give up its ranks, if others can take them. Returns whether it was not
  // draining before.
  bool Drain(const std::string& worker);
  // Sets Options::rebalance from now on.
  void Rebalance() { rebalance_ = true; }

  // Frees the worker's unfinished ranks and returns them. `how` describes how it left. The ranks of
  // a dead worker, which may return by itself, are reserved for the grace period. The job fails if
  // no successor takes over in time (CheckReturn), unless the job only serves and the worker left.
  std::vector<FreeRank> Leave(const Node& worker, const std::string& how, bool dead,
                              MonotonicTime now);
  // Frees and returns those of the ranks that the worker hosts in these incarnations and that have
  // not finished.
  std::vector<FreeRank> GiveUp(const Node& worker, const std::vector<FreeRank>& ranks,
                               MonotonicTime now);

  // Assigns free ranks and decides which ranks their hosts must give up. Returns the workers whose
  // assignments changed. To be called after each change, and as time passes.
  std::vector<std::string> Place(MonotonicTime now,
                                 const std::function<uint64_t()>& next_incarnation);

  // The worker has completed all steps of these of its ranks, or of all if `ranks` is empty.
  // Returns these ranks.
  std::vector<FreeRank> Finish(const std::string& worker, absl::Span<const uint32_t> ranks = {});
  bool AllFinished() const;

  // The ranks that the worker must host, ascending and without tickets. nullopt while undecided.
  std::optional<GetAssignmentResponse> AssignmentOf(const std::string& worker) const;
  WorkerGroup::Hosts Hosts() const;
  // Whether the worker is a follower.
  bool Follows(const std::string& worker) const;
  // Whether the free ranks have been assigned for the first time.
  bool decided() const { return decided_; }
  // Whether every rank, or any, has a host.
  bool AllHosted() const;
  bool AnyHosted() const;
  // The host of the rank. Empty: none.
  const std::string& HostOf(uint32_t rank) const { return ranks_[rank].saved.host(); }
  // Whether the rank has completed all its steps.
  bool IsFinished(uint32_t rank) const { return ranks_[rank].saved.finished(); }
  // HostOf, or if there is none the last host.
  const std::string& LastHostOf(uint32_t rank) const;
  uint32_t total() const { return options_.total; }
  // The unfinished ranks that lost their hosts.
  std::vector<FreeRank> FreeRanks() const;
  // The ranks for which the others must not wait: the free ones, and the finished ones as long as
  // some are left that have not finished.
  std::vector<FreeRank> RanksToRelease() const;

  // Returns the error that the job fails with: no worker took over some rank within `timeout`, or
  // kMaxLossesWithoutAStep hosts in a row died without a step over more than `timeout`.
  std::optional<std::string> CheckReturn(MonotonicTime now, MonotonicDuration timeout) const;

  // The host is answered with its present assignment. Returns whether that names a rank for the
  // first time; the answer must then wait until this is saved.
  bool MarkTold(const std::string& worker);
  // Ranks that `worker` must give up without ever having heard of them: they were given to it and
  // taken away after assignment `known_version`, the newest that it knows. 0: it knows none.
  std::vector<FreeRank> LeavingUnheard(const std::string& worker, uint64_t known_version) const;

  // A worker's report on its ranks. Ignored for a rank with fewer steps than in an earlier report.
  void NoteProgress(const WorkerProgress& progress);
  // nullptr: no report yet.
  const RankProgress* ProgressOf(uint32_t rank) const {
    return ranks_[rank].saved.has_progress() ? &ranks_[rank].saved.progress() : nullptr;
  }

  StoredRanks Save() const;
  // REQUIRES: no worker has joined, and `stored` has as many ranks.
  void Restore(const StoredRanks& stored, MonotonicTime now);

 private:
  struct Rank {
    StoredRank saved;
    // The following are not saved. After a restart of the scheduler times and losses are counted
    // again, which delays the failures that follow from them.
    //
    // Since when it has had no host.
    MonotonicTime free_since;
    // The steps when the present host got the rank.
    uint64_t steps_when_given = 0;
    // The number of hosts in a row that died without a step, when the first of them died, and
    // whether the last host is one of them.
    uint32_t losses_without_a_step = 0;
    MonotonicTime first_loss;
    bool died_without_step = false;

    uint64_t Steps() const { return saved.progress().steps(); }
    bool HasProgressed() const { return Steps() > steps_when_given; }
    // The host no longer has it.
    void Free(const std::string& departure, bool must_return, bool is_reserved, MonotonicTime now) {
      saved.set_last_host(saved.host());
      saved.clear_host();
      saved.set_departure(departure);
      saved.set_must_return(must_return);
      saved.set_is_reserved(is_reserved);
      saved.set_leaving(false);
      free_since = now;
    }
    // To be called at each change of host.
    void CountSteps() {
      if (HasProgressed()) losses_without_a_step = 0;
      steps_when_given = Steps();
    }

    bool IsOrphaned() const {
      return saved.host().empty() && !saved.last_host().empty() && !saved.finished();
    }
  };
  struct Host {
    StoredRankHost saved;
    // That of its assignment.
    uint64_t version = 0;
  };

  Host* Find(const std::string& worker);
  const Host* Find(const std::string& worker) const;
  bool HasUnfinishedRanks(const std::string& worker) const;
  bool IsReserved(const Rank& rank, MonotonicTime now) const;
  void Assign(Host& host, Rank& rank, const std::function<uint64_t()>& next_incarnation);
  void MaybeDecide(const std::function<uint64_t()>& next_incarnation);
  void AssignToReturnedAndIdle(const std::function<uint64_t()>& next_incarnation);
  void ShareAmongFollowers(MonotonicTime now, const std::function<uint64_t()>& next_incarnation);
  // The worker whose ranks a worker that is not a follower gets now. Empty: none.
  std::string Predecessor(const std::string& worker) const;

  const Options options_;
  uint32_t wanted_workers_;
  bool rebalance_;
  std::vector<Rank> ranks_;
  // In the order of joining.
  std::vector<Host> hosts_;
  bool decided_ = false;
  uint64_t version_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_LOGICAL_WORKERS_H_
