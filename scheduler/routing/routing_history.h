// The recent changes of the routing table.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/scheduler.pb.h"

namespace pawl {

// Limits of the remembered changes, and of the partitions that they name in total. Older changes
// are forgotten; nodes that lack them get the whole table.
inline constexpr size_t kMaxRoutingChanges = 1024;
inline constexpr size_t kMaxChangedPartitionsKept = size_t{1} << 20;

// Not thread-safe.
class RoutingHistory {
 public:
  // `after` replaces `before`. REQUIRES: every node with a table of before's epoch has `before`.
  void Add(const RoutingTable& before, const RoutingTable& after);

  // The changes from the table of `epoch` to `table`, the `after` of some Add. nullopt if they are
  // unknown, or so many that the whole table is no larger.
  std::optional<RoutingTable> Since(uint64_t epoch, const RoutingTable& table) const;

 private:
  struct Change {
    uint64_t from = 0;
    uint64_t to = 0;
    bool servers = false;
    std::vector<uint32_t> partitions;
  };

  // Each change starts at the epoch where the previous one ends.
  std::deque<Change> changes_;
  size_t partitions_kept_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
