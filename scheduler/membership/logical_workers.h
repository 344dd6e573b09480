// Which worker hosts which ranks.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_LOGICAL_WORKERS_H_
#define PAWL_SCHEDULER_MEMBERSHIP_LOGICAL_WORKERS_H_

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

namespace pawl {

// A rank that so many workers in a row have lost by dying, none of them with a step done, is a rank
// that nobody can host. They are counted in one incarnation of the scheduler and not saved: one
// that is restarted gives the rank as many hosts anew.
inline constexpr uint32_t kMaxLossesWithoutAStep = 5;

// Gives the ranks 0 to total - 1 to workers. A worker insists on certain ranks, which are its own
// at once, or takes what it is given. The latter are of two kinds: those that follow their
// assignment take over and give up ranks while they run, the others keep what they got first.
//
// Once as many workers are there as are wanted, the free ranks are shared among those without a
// wish. From then on a rank of a worker that goes is free, and is given out
//
//   to the same worker, if that is there again, unless it has died with it twice in a row without a
//   step: then others come first; else to a follower that stands by: all that one who went has left
//   to one; else, when it has been kept for the worker for the grace, or at once if that left on
//   purpose, to the followers with the fewest ranks (scheduler/membership/rank_placement.h).
//
// With `rebalance`, and of a follower that is drained, ranks move also while they have a host: it
// is told to give them up, and others get them when it has. Ranks that have finished stay with
// their last host. Only followers that are ready take over from others, as long as there are any.
// Time is passed in. Not thread-safe.
//
// Invariants:
// 1. A rank has at most one host, in whose hands its incarnation is one that was never given out
// before.
// 2. A rank that is to be given up is: it never goes back into the assignment without having been
// in it anew.
class LogicalWorkers {
 public:
  struct Options {
    uint32_t total = 0;
    // See SetWantedWorkers.
    uint32_t workers = 0;
    bool rebalance = false;
    MonotonicDuration takeover_grace = std::chrono::seconds(1);
  };
  explicit LogicalWorkers(const Options& options)
      : options_(options),
        wanted_workers_(options.workers),
        rebalance_(options.rebalance),
        ranks_(options.total) {}

  struct Worker {
    std::string name;
    // Of the process; also of its ranks, unless it follows.
    uint64_t incarnation = 0;
    std::vector<uint32_t> wishes = {};
    bool follows = false;
  };
  // So many are to be there before ranks are given out, without those that are drained. 0: the
  // first worker without a wish gets all free ranks. Not saved.
  void SetWantedWorkers(uint32_t workers) { wanted_workers_ = workers; }
  // Whether the worker could join: OUT_OF_RANGE for an impossible rank, INVALID_ARGUMENT for a rank
  // named twice, ALREADY_EXISTS for one that another worker hosts, RESOURCE_EXHAUSTED if it would
  // never get a rank.
  absl::Status CheckWishes(const Worker& worker) const;
  // REQUIRES: CheckWishes(worker) is OK, and the worker has not joined, or has left.
  void Join(const Worker& worker);
  // It can begin with a rank at once. Returns whether that is new.
  bool MarkReady(const std::string& worker);
  // A follower is to have no ranks any more, if others can have them. Returns whether that is new.
  bool Drain(const std::string& worker);
  // From now on as with Options::rebalance.
  void Rebalance() { rebalance_ = true; }

  struct Departure {
    std::string worker;
    // "worker-1 (host pid 7) died: ..."
    std::string how;
    // The job waits for a successor; false: whenever one comes.
    bool must_return = true;
    // It may come back by itself, and has its ranks kept for a while.
    bool may_return = true;
  };
  struct FreeRank {
    uint32_t rank = 0;
    // In the hands of its last host.
    uint64_t incarnation = 0;
  };
  // Its ranks are free; returns those that it had not finished.
  std::vector<FreeRank> Leave(const Departure& departure, MonotonicTime now);

  // The worker has done with the rank in that incarnation. False: that is over, or the rank has
  // finished.
  bool GiveUp(const std::string& worker, const std::string& how, const FreeRank& given_up,
              MonotonicTime now);

  // Gives out what there is to give out and says who is to give up what; returns the workers whose
  // assignments are other ones. To be called after each change, and as time passes.
  std::vector<std::string> Place(MonotonicTime now,
                                 const std::function<uint64_t()>& next_incarnation);

  // These ranks, or if none are named all, as far as the worker hosts them, have done all their
  // steps.
  void Finish(const std::string& worker, absl::Span<const uint32_t> ranks = {});
  bool AllFinished() const;

  struct Assignment {
    uint64_t version = 0;
    // Ascending.
    std::vector<FreeRank> ranks;
  };
  // What the worker is to host; nullopt while that is not decided.
  std::optional<Assignment> AssignmentOf(const std::string& worker) const;
  // What it hosts, or has finished. Ascending.
  std::vector<uint32_t> RanksOf(const std::string& worker) const;
  // It takes over and gives up ranks as it is told.
  bool Follows(const std::string& worker) const;
  // The free ranks have been given out.
  bool decided() const { return decided_; }
  // Every rank has a host.
  bool AllHosted() const;
  // The worker that hosts each rank; empty where there is none.
  const std::string& HostOf(uint32_t rank) const { return ranks_[rank].host; }
  // In whose hands it has this incarnation; is to be given up by them; has done all its steps.
  uint64_t IncarnationOf(uint32_t rank) const { return ranks_[rank].incarnation; }
  bool IsLeaving(uint32_t rank) const { return ranks_[rank].leaving; }
  bool IsFinished(uint32_t rank) const { return ranks_[rank].finished; }
  // HostOf, or where there is none the one that did last.
  const std::string& LastHostOf(uint32_t rank) const;
  uint32_t total() const { return options_.total; }
  // Ranks that have lost their host before they had finished.
  std::vector<FreeRank> FreeRanks() const;

  // What the job fails with: nobody has taken over some rank for longer than `timeout`, or for
  // longer than that whoever did has died without a step, kMaxLossesWithoutAStep workers in a row.
  std::optional<std::string> CheckReturn(MonotonicTime now, MonotonicDuration timeout) const;

  // What its host says of the rank; what says less than others did before it counts for nothing.
  void NoteProgress(const RankProgress& progress);
  // Not set: nobody has said anything.
  const std::optional<RankProgress>& ProgressOf(uint32_t rank) const {
    return ranks_[rank].progress;
  }

  StoredRanks Save() const;
  // REQUIRES: nobody has joined, and `stored` has as many ranks.
  void Restore(const StoredRanks& stored, MonotonicTime now);

 private:
  struct Rank {
    std::string host;
    uint64_t incarnation = 0;
    // The host is to give it up.
    bool leaving = false;
    std::string last_host;
    std::string how_gone;
    bool must_return = false;
    bool kept = false;
    bool finished = false;
    MonotonicTime free_since;
    std::optional<RankProgress> progress;
    // The following are not saved: after a restart of the scheduler they are counted anew, which
    // puts off what comes of them by as much as has been counted.
    //
    // Of `progress`, when the present host got it.
    uint64_t steps_when_given = 0;
    // Hosts that have died with it one after the other without a step in between, and when the
    // first one; whether the last host is one of them.
    uint32_t losses_without_a_step = 0;
    MonotonicTime first_loss;
    bool died_in_vain = false;

    uint64_t Steps() const { return progress.has_value() ? progress->steps() : 0; }
    bool HasDoneAStep() const { return Steps() > steps_when_given; }
    // Whenever it changes hands.
    void CountSteps() {
      if (HasDoneAStep()) losses_without_a_step = 0;
      steps_when_given = Steps();
    }

    bool HasLostItsHost() const { return host.empty() && !last_host.empty() && !finished; }
  };
  struct Host {
    Worker worker;
    bool ready = false;
    bool draining = false;
    uint64_t version = 0;
  };

  Host* Find(const std::string& worker);
  const Host* Find(const std::string& worker) const;
  bool HostsUnfinished(const std::string& worker) const;
  bool IsKept(const Rank& rank, MonotonicTime now) const;
  void GiveTo(Host& host, Rank& rank, const std::function<uint64_t()>& next_incarnation);
  void DecideIfAllAreThere(const std::function<uint64_t()>& next_incarnation);
  void GiveBackAndToSpares(const std::function<uint64_t()>& next_incarnation);
  void PlaceAmongFollowers(MonotonicTime now, const std::function<uint64_t()>& next_incarnation);
  // Whose ranks a worker that does not follow gets now; empty if there are none.
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
