// What has changed in the routing table since which epoch.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/scheduler.pb.h"

namespace pawl {

// Not thread-safe.
class RoutingHistory {
 public:
  // `after` replaces `before`. REQUIRES: every node with a table of before's epoch has `before`,
  // and no node has a table of an epoch between the two.
  void Add(const RoutingTable& before, const RoutingTable& after);

  // Entries of `table`, the `after` of some Add, that make it from the table of `epoch`. nullopt if
  // the changes since are unknown, or so many that the whole table is no larger.
  std::optional<RoutingTable> Since(uint64_t epoch, const RoutingTable& table) const;

 private:
  // The epochs between which all changes are known; none if they are equal.
  uint64_t first_ = UINT64_MAX;
  uint64_t last_ = UINT64_MAX;
  // The epochs of the last change of the servers, and of each partition. 0: no known change.
  uint64_t servers_changed_ = 0;
  std::vector<uint64_t> changed_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_HISTORY_H_
