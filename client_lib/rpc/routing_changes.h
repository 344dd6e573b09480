// Routing tables as changes since an earlier table (RoutingTable.since_epoch).
#ifndef PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_
#define PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// All functions are pure.

// Whether every server that the entries of the partition name is in `table.servers`. REQUIRES: the
// table is whole.
bool NamesListedServers(const RoutingTable& table, int partition);

// The partitions, ascending, in which `before` and `after` differ. REQUIRES: both tables are whole
// and have the same number of partitions.
std::vector<uint32_t> ChangedPartitions(const RoutingTable& before, const RoutingTable& after);

// Returns the changes from the table of `since_epoch` to the whole `table`: the partitions
// `changed`, ascending, and the servers if `servers_changed`.
RoutingTable RoutingChanges(const RoutingTable& table, uint64_t since_epoch,
                            const std::vector<uint32_t>& changed, bool servers_changed);

// Returns the whole table. INVALID_ARGUMENT if the changes do not fit `base` (another job or epoch,
// or unknown partitions) or contradict themselves; ask for the whole table then. REQUIRES: `base`
// is whole.
absl::StatusOr<RoutingTable> ApplyRoutingChanges(const RoutingTable& base,
                                                 const RoutingTable& changes);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_ROUTING_CHANGES_H_
