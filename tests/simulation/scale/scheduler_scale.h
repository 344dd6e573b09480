// How the scheduler does with a cluster of a certain size: the real Coordinator, and as many nodes
// as that is, which do nothing but send heartbeats, follow the routing and copy replicas as fast as
// they may. Simulated time for them, processor time for the scheduler.
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
  // Of all partitions together, each once.
  uint64_t parameter_bytes = uint64_t{1} << 40;
  // What a server sends, and what it receives, at most while it copies.
  uint64_t repair_bytes_per_s = uint64_t{100} << 20;
};

// Registers all, places the partitions, lets one server die and then a whole zone, and waits each
// time until every partition has all of its replicas again. The figures, by name; times are of the
// scheduler's work alone, without gRPC, and on one core. INTERNAL if the scheduler does not get
// there, or a routing that was told as changes differs from the whole one.
absl::StatusOr<nlohmann::ordered_json> MeasureScheduler(const SchedulerScaleOptions& options);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SCALE_SCHEDULER_SCALE_H_
