// Routing tables as what has changed since an earlier one (RoutingTable.since_epoch).
#ifndef PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_
#define PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// All functions are pure.

// Partitions, ascending, of which `after` says something else than `before`. REQUIRES: both are
// whole and of as many partitions.
std::vector<uint32_t> ChangedPartitions(const RoutingTable& before, const RoutingTable& after);

// Of `table`, which is whole, what somebody needs who has that of `since_epoch`, from which it
// differs in these partitions, ascending, and in its servers if `servers_changed`.
RoutingTable RoutingChanges(const RoutingTable& table, uint64_t since_epoch,
                            const std::vector<uint32_t>& changed, bool servers_changed);

// The whole table. INVALID_ARGUMENT if the changes do not fit `base` (those of another job or
// epoch, partitions that it does not have) or contradict themselves; the whole table is to be asked
// for then. REQUIRES: `base` is whole.
absl::StatusOr<RoutingTable> ApplyRoutingChanges(const RoutingTable& base,
                                                 const RoutingTable& changes);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_
