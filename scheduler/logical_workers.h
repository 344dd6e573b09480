// Which worker hosts which ranks.
#ifndef PAWL_SCHEDULER_LOGICAL_WORKERS_H_
#define PAWL_SCHEDULER_LOGICAL_WORKERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// Gives the ranks 0 to total - 1 to workers. A worker either insists on certain ranks, which are
// its own at once, or takes what it is given: once `workers` workers are there, the free ranks go to those
// without a wish, in contiguous runs of nearly equal length, in the order in which they joined.
//
// Later on, the ranks of a worker that goes are free at once. They go to the first that comes: the same worker gets its
// own again, a new one those of one that is away. Ranks that have finished stay with their last host. Time is passed in.
// Not thread-safe.
class LogicalWorkers {
 public:
  // workers == 0: the first worker without a wish gets all free ranks.
  LogicalWorkers(uint32_t total, uint32_t workers) : total_(total), workers_(workers), ranks_(total) {}

  // Whether `worker` could join with these wishes: OUT_OF_RANGE for an impossible rank, INVALID_ARGUMENT for a rank
  // named twice, ALREADY_EXISTS for one that another worker hosts, RESOURCE_EXHAUSTED if no ranks are left to give.
  absl::Status CheckWishes(const std::string& worker, absl::Span<const uint32_t> wishes) const;
  // REQUIRES: CheckWishes(worker, wishes) is OK, and the worker has not joined, or has left.
  void Join(const std::string& worker, absl::Span<const uint32_t> wishes);

  struct Departure {
    std::string worker;
    uint64_t incarnation = 0;
    // "worker-1 (host pid 7) died: ..."
    std::string how;
    // The job waits for a successor; false: whenever one comes.
    bool must_return = true;
  };
  // Its ranks are free; returns those that it had not finished.
  std::vector<uint32_t> Leave(const Departure& departure, MonotonicTime now);

  // The ranks that it hosts have done all their steps.
  void Finish(const std::string& worker);
  bool AllFinished() const;

  // Ascending; nullopt while they are not decided.
  std::optional<std::vector<uint32_t>> RanksOf(const std::string& worker) const;
  // The free ranks have been given out.
  bool decided() const { return decided_; }
  // Every rank has a host.
  bool AllHosted() const;
  // The worker that hosts each rank; empty where there is none.
  const std::string& HostOf(uint32_t rank) const { return ranks_[rank].host; }
  // The same, or where there is none the one that did last.
  const std::string& LastHostOf(uint32_t rank) const;
  uint32_t total() const { return total_; }

  struct FreeRank {
    uint32_t rank = 0;
    // Of the life that is over.
    uint64_t incarnation = 0;
  };
  // Ranks that have lost their host before they had finished.
  std::vector<FreeRank> FreeRanks() const;

  // What the job fails with: nobody has taken over some rank for longer than `timeout`.
  std::optional<std::string> CheckReturn(MonotonicTime now, MonotonicDuration timeout) const;

  StoredRanks Save() const;
  // REQUIRES: nobody has joined, and `stored` has as many ranks.
  void Restore(const StoredRanks& stored, MonotonicTime now);

 private:
  struct Rank {
    std::string host;
    std::string last_host;
    uint64_t last_incarnation = 0;
    std::string how_gone;
    bool must_return = false;
    bool finished = false;
    MonotonicTime free_since;

    bool HasLostItsHost() const { return host.empty() && !last_host.empty() && !finished; }
  };

  void DecideIfAllAreThere();
  // Whose ranks a worker without wishes gets now; empty if there are none.
  std::string Predecessor(const std::string& worker) const;

  const uint32_t total_;
  const uint32_t workers_;
  std::vector<Rank> ranks_;
  // Whether each worker has wishes, and their order of joining.
  std::map<std::string, bool> joined_;
  std::vector<std::string> without_wishes_;
  bool decided_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_LOGICAL_WORKERS_H_
