// Measures the scheduler with a large cluster: the real Coordinator, with nodes that only send
// heartbeats, adopt the routing and copy replicas at the permitted rate. The nodes run in simulated
// time; the scheduler's processor time is measured.
#ifndef PAWL_TESTS_SIMULATION_SCALE_SCHEDULER_SCALE_H_
#define PAWL_TESTS_SIMULATION_SCALE_SCHEDULER_SCALE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pawl {

struct SchedulerScaleOptions {
  uint32_t servers = 1000;
  uint32_t workers = 10000;
  uint32_t partitions = 4096;
  uint32_t replicas = 2;
  // Server i is in zone i mod zones.
  uint32_t zones = 20;
  // The size of all partitions, counting one replica each.
  uint64_t parameter_bytes = uint64_t{1} << 40;
  // The rate at which a server sends, and at which it receives, while it copies.
  uint64_t repair_bytes_per_s = uint64_t{100} << 20;
};

// Registers all nodes, places the partitions, then lets one server die and then a whole zone. Waits
// after each until every partition has all replicas again. Returns the figures by name: times of
// the scheduler's work on one core, without gRPC. INTERNAL if the scheduler does not finish, or if
// a routing built from changes differs from the complete one.
absl::StatusOr<nlohmann::ordered_json> MeasureScheduler(const SchedulerScaleOptions& options);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SCALE_SCHEDULER_SCALE_H_
