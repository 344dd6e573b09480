// The routing table's successive versions.
#ifndef PAWL_SCHEDULER_ROUTING_H_
#define PAWL_SCHEDULER_ROUTING_H_

#include <cstdint>
#include <vector>

#include "proto/scheduler.pb.h"
#include "scheduler/membership.h"

namespace pawl {

// Holds the current routing table. Its epoch is 0, with no servers, until the first Publish, and
// grows by one with each. Not thread-safe.
class Routing {
 public:
  Routing(uint64_t job_id, uint32_t partitions);

  // Makes a table in which partition p belongs to servers[primary[p]]. REQUIRES: primary has an
  // entry for each partition, each an index of `servers`.
  void Publish(const std::vector<const Node*>& servers, const std::vector<uint32_t>& primary);

  bool published() const { return table_.epoch() > 0; }
  uint64_t epoch() const { return table_.epoch(); }
  const RoutingTable& table() const { return table_; }
  // Partitions of each server, by its index in the table.
  std::vector<uint32_t> PartitionCounts() const;

 private:
  const uint32_t partitions_;
  RoutingTable table_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_ROUTING_H_
