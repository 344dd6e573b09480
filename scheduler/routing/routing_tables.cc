#include "scheduler/routing/routing_tables.h"

#include <optional>
#include <utility>

#include "scheduler/routing/routing.h"

namespace pawl {

const std::shared_ptr<const RoutingTable>& RoutingTables::Newest(const Placement& placement,
                                                                 const Membership& membership) {
  if (!std::exchange(is_behind_, false)) return newest_;
  const std::shared_ptr<const RoutingTable> before =
      std::exchange(newest_, std::make_shared<RoutingTable>(MakeRoutingTable(
                                 job_id_, placement, membership.Present(SERVER_ROLE))));
  if (before != nullptr && !std::exchange(is_rebuilt_, false)) history_.Add(*before, *newest_);
  return newest_;
}

void RoutingTables::Remake(const Placement& placement, const Membership& membership) {
  Newest(placement, membership);
  is_rebuilt_ = true;
}

std::shared_ptr<const RoutingTable> RoutingTables::Answer(
    const RoutingRequest& wanted, const std::shared_ptr<const RoutingTable>& table) const {
  if (wanted.accepts_changes) {
    if (std::optional<RoutingTable> changes = history_.Since(wanted.newer_than, *table);
        changes.has_value()) {
      return std::make_shared<const RoutingTable>(*std::move(changes));
    }
  }
  return table;
}

}  // namespace pawl
