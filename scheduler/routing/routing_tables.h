// The routing tables of the job, one epoch after the other.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_

#include <cstdint>
#include <memory>

#include "proto/scheduler.pb.h"
#include "scheduler/membership/membership.h"
#include "scheduler/placement/placement.h"
#include "scheduler/routing/routing_history.h"

namespace pawl {

// What a caller of GetRouting wants.
struct RoutingWanted {
  uint64_t newer_than = 0;
  // The caller has the table of that epoch.
  bool accepts_changes = false;
  bool operator==(const RoutingWanted&) const = default;
};

// Makes the table of the present placement, and knows what has changed from one table to the next.
// Which of them is told already is for others to know. Not thread-safe.
//
// Invariants:
//  1. A table is made only when somebody looks at it: until a state is saved many learners may
//  catch up.
//  2. Of an epoch there is one table here, and changes are answered only to who has it: not to who
//  may have another one,
//     which the scheduler before a restart has made.
class RoutingTables {
 public:
  explicit RoutingTables(uint64_t job_id) : job_id_(job_id) {}

  // The placement, which has another epoch then, is not as in the newest table any more.
  void OnPlacementChanged() { is_behind_ = true; }

  // The newest table, of the present placement; null before the first OnPlacementChanged. REQUIRES:
  // as MakeRoutingTable.
  const std::shared_ptr<const RoutingTable>& Newest(const Placement& placement,
                                                    const Membership& membership);
  // The same after a restart, of the placement as it was saved. Who was here before may have told
  // another table of that epoch, being another version: changes from this one are told to nobody.
  void Remake(const Placement& placement, const Membership& membership);

  // What somebody gets who wants a newer one and is to have `table`, which Newest has returned some
  // time: all of it, or the changes up to it. REQUIRES: it is newer.
  std::shared_ptr<const RoutingTable> Answer(
      const RoutingWanted& wanted, const std::shared_ptr<const RoutingTable>& table) const;

 private:
  const uint64_t job_id_;
  std::shared_ptr<const RoutingTable> newest_;
  bool is_behind_ = false;
  // Nobody may know newest_ as it is.
  bool is_remade_ = false;
  // Up to newest_.
  RoutingHistory history_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_TABLES_H_
