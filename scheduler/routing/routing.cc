#include "scheduler/routing/routing.h"

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace pawl {

namespace {

// The servers in the order in which the table names them: server-i in place i as far as there are
// so many, and the others, in order, in the places of those that are not there. So when one goes or
// comes few others get another place, whose partitions the change of the table would have to name;
// and which order it is does not depend on what was before.
std::vector<const Node*> InTheirPlaces(const std::vector<const Node*>& servers) {
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
  for (const Node* server : InTheirPlaces(servers)) {
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
    replicas.set_began(set.began);
    for (const ServerNumber backup : set.backups) replicas.add_backups(index(backup));
    for (const ReplicaSet::Learner& learner : set.learners) {
      replicas.add_learners(index(learner.server));
      replicas.add_learners_since(learner.since);
    }
    for (const ServerNumber keeper : set.keepers) {
      if (const auto it = indices.find(keeper); it != indices.end())
        replicas.add_keepers(it->second);
    }
    replicas.set_confirm_since(set.confirm_since);
    if (set.primary != kNoServer) continue;
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
