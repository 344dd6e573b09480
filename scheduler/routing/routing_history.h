// What has changed in the routing lately.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/scheduler.pb.h"

namespace pawl {

// Changes that are remembered, and partitions that they name in all; older ones are forgotten, and
// who has not heard of them gets the whole table.
inline constexpr size_t kMaxRoutingChanges = 1024;
inline constexpr size_t kMaxChangedPartitionsKept = size_t{1} << 20;

// Not thread-safe.
class RoutingHistory {
 public:
  // `after` takes the place of `before`: anybody who has a table of before's epoch has that very
  // one.
  void Add(const RoutingTable& before, const RoutingTable& after);

  // What has changed in `table`, the `after` of some Add, since that of `epoch`; nullopt if that is
  // not known, or so much that the whole table is no larger.
  std::optional<RoutingTable> Since(uint64_t epoch, const RoutingTable& table) const;

 private:
  struct Change {
    uint64_t from = 0;
    uint64_t to = 0;
    bool servers = false;
    std::vector<uint32_t> partitions;
  };

  // Each begins where the one before has ended.
  std::deque<Change> changes_;
  size_t partitions_kept_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
