#include "scheduler/routing.h"

#include <cstdlib>

namespace pawl {

Routing::Routing(uint64_t job_id, uint32_t partitions) : partitions_(partitions) { table_.set_job_id(job_id); }

void Routing::Publish(const std::vector<const Node*>& servers, const std::vector<uint32_t>& primary) {
  if (primary.size() != partitions_) std::abort();
  table_.set_epoch(table_.epoch() + 1);
  table_.clear_servers();
  for (const Node* server : servers) {
    ServerAddress& address = *table_.add_servers();
    address.set_node(server->name);
    address.set_address(server->address);
    address.set_incarnation(server->incarnation);
  }
  table_.clear_primary();
  for (const uint32_t server : primary) {
    if (server >= servers.size()) std::abort();
    table_.add_primary(server);
  }
}

std::vector<uint32_t> Routing::PartitionCounts() const {
  std::vector<uint32_t> counts(table_.servers_size());
  for (const uint32_t server : table_.primary()) ++counts[server];
  return counts;
}

}  // namespace pawl
