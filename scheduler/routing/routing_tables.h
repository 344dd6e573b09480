// Builds the job's routing tables, and answers requests for them with changes where possible.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_

#include <cstdint>
#include <memory>

#include "proto/scheduler.pb.h"
#include "scheduler/membership/membership.h"
#include "scheduler/placement/placement.h"
#include "scheduler/routing/routing_history.h"

namespace pawl {

// A GetRouting request.
struct RoutingRequest {
  uint64_t newer_than = 0;
  // The caller has the table of that epoch.
  bool accepts_changes = false;
  bool operator==(const RoutingRequest&) const = default;
};

// Builds the table of the present placement and keeps the changes between tables. The caller
// decides which table nodes may receive. Not thread-safe.
//
// Invariants:
//  1. A table is built only when it is read, because many learners may catch up before a state is
//     saved.
//  2. There is one table per epoch. Changes are sent only to nodes that have the table they start
//     from, not to nodes that may have a table of the same epoch from before a restart.
class RoutingTables {
 public:
  explicit RoutingTables(uint64_t job_id) : job_id_(job_id) {}

  // The placement has a new epoch, so the newest table is outdated.
  void OnPlacementChanged() { is_behind_ = true; }

  // The table of the present placement. Null before the first OnPlacementChanged. REQUIRES: as
  // MakeRoutingTable.
  const std::shared_ptr<const RoutingTable>& Newest(const Placement& placement,
                                                    const Membership& membership);
  // Builds the table of the saved placement after a restart. No changes from this table are sent: a
  // scheduler of another version may have sent another table of that epoch.
  void Remake(const Placement& placement, const Membership& membership);

  // The response to a request that gets `table`, which Newest once returned: all of it, or the
  // changes up to it. REQUIRES: `table` is newer than requested.
  std::shared_ptr<const RoutingTable> Answer(
      const RoutingRequest& wanted, const std::shared_ptr<const RoutingTable>& table) const;

 private:
  const uint64_t job_id_;
  std::shared_ptr<const RoutingTable> newest_;
  bool is_behind_ = false;
  // Nodes may have another table of newest_'s epoch.
  bool is_rebuilt_ = false;
  // The changes that lead to newest_.
  RoutingHistory history_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_
