#include "scheduler/routing/routing.h"

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace pawl {

namespace {

// The servers in the order of the table: server-i at index i if i is below their number, the others
// in ascending order at the free indices. A server that comes or goes thus changes few indices, and
// with them few partitions of the table. The order does not depend on earlier tables.
std::vector<const Node*> InTableOrder(const std::vector<const Node*>& servers) {
  std::vector<const Node*> places(servers.size());
  for (const Node* server : servers) {
    if (server->number < places.size()) places[server->number] = server;
  }
  size_t free = 0;
  for (const Node* server : servers) {
    if (server->number < places.size()) continue;
    while (places[free] != nullptr) ++free;
    places[free] = server;
  }
  return places;
}

}  // namespace

RoutingTable MakeRoutingTable(uint64_t job_id, const Placement& placement,
                              const std::vector<const Node*>& servers) {
  RoutingTable table;
  table.set_job_id(job_id);
  table.set_epoch(placement.epoch);
  absl::flat_hash_map<ServerNumber, uint32_t> indices;
  for (const Node* server : InTableOrder(servers)) {
    indices[server->number] = static_cast<uint32_t>(table.servers_size());
    ServerAddress& address = *table.add_servers();
    address.set_node(server->name);
    address.set_address(server->address);
    address.set_incarnation(server->incarnation);
  }
  const auto index = [&](ServerNumber server) {
    const auto it = indices.find(server);
    if (it == indices.end()) std::abort();
    return it->second;
  };
  for (const ReplicaSet& set : placement.partitions) {
    table.add_primary(set.primary == kNoServer ? kNoPrimary : index(set.primary));
    PartitionReplicas& replicas = *table.add_replicas();
    replicas.set_primary_since(set.primary_since);
    replicas.set_created_epoch(set.created_epoch);
    for (const ServerNumber backup : set.backups) replicas.add_backups(index(backup));
    for (const ReplicaSet::Learner& learner : set.learners) {
      replicas.add_learners(index(learner.server));
      replicas.add_learners_since(learner.since);
    }
    for (const ServerNumber server : set.retained) {
      if (const auto it = indices.find(server); it != indices.end())
        replicas.add_retained(it->second);
    }
    replicas.set_confirm_since(set.confirm_since);
    if (set.primary != kNoServer) continue;
    if (set.yielding != kNoServer) replicas.set_yielding(index(set.yielding));
    for (const ServerNumber server : set.last_in_sync)
      replicas.add_last_in_sync(absl::StrCat("server-", server));
  }
  return table;
}

std::vector<uint32_t> ReplicaCounts(const RoutingTable& table) {
  std::vector<uint32_t> counts(table.servers_size());
  for (int partition = 0; partition < table.primary_size(); ++partition) {
    if (table.primary(partition) != kNoPrimary) ++counts[table.primary(partition)];
    for (const uint32_t backup : table.replicas(partition).backups()) ++counts[backup];
  }
  return counts;
}

}  // namespace pawl
