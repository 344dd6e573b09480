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

namespace pawl {

// Gives the ranks 0 to total - 1 to workers. A worker either insists on certain ranks, which are
// its own at once, or takes what it is given: once `workers` workers are there, the free ranks go to those
// without a wish, in contiguous runs of nearly equal length, in the order in which they joined. Not thread-safe.
class LogicalWorkers {
 public:
  // workers == 0: the first worker without a wish gets all free ranks.
  LogicalWorkers(uint32_t total, uint32_t workers) : total_(total), workers_(workers) {}

  // Whether a new worker with these wishes could join: OUT_OF_RANGE for an impossible rank, INVALID_ARGUMENT for a rank named twice,
  // ALREADY_EXISTS for one that another worker hosts, RESOURCE_EXHAUSTED if no ranks are left to give.
  absl::Status CheckWishes(absl::Span<const uint32_t> wishes) const;
  // REQUIRES: CheckWishes(wishes) is OK, and the worker is new.
  void Join(const std::string& worker, absl::Span<const uint32_t> wishes);
  // Its ranks are free again.
  void Leave(const std::string& worker);

  // Ascending; nullopt while they are not decided.
  std::optional<std::vector<uint32_t>> RanksOf(const std::string& worker) const;
  // The free ranks have been given out.
  bool decided() const { return decided_; }
  // Every rank has a host.
  bool AllHosted() const;
  // The worker that hosts each rank; empty where there is none.
  const std::vector<std::string>& hosts() const { return hosts_; }
  uint32_t total() const { return total_; }

 private:
  void DecideIfAllAreThere();

  const uint32_t total_;
  const uint32_t workers_;
  std::vector<std::string> hosts_ = std::vector<std::string>(total_);
  // Whether each worker has wishes, and their order of joining.
  std::map<std::string, bool> joined_;
  std::vector<std::string> without_wishes_;
  bool decided_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_LOGICAL_WORKERS_H_
