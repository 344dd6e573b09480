// Builds the routing table, in which nodes receive the placement.
#ifndef PAWL_SCHEDULER_ROUTING_ROUTING_H_
#define PAWL_SCHEDULER_ROUTING_ROUTING_H_

#include <cstdint>
#include <vector>

#include "client_lib/base/limits.h"
#include "proto/scheduler.pb.h"
#include "scheduler/membership/membership.h"
#include "scheduler/placement/placement.h"

namespace pawl {

// The table of placement.epoch. It names all `servers`, also those without replicas, in an order
// that changes little when a server joins or leaves. REQUIRES: server numbers are distinct;
// primaries, backups, learners and yielding primaries are among `servers`.
RoutingTable MakeRoutingTable(uint64_t job_id, const Placement& placement,
                              const std::vector<const Node*>& servers);

// The number of replicas of each server, by its index in the table.
std::vector<uint32_t> ReplicaCounts(const RoutingTable& table);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_ROUTING_H_
